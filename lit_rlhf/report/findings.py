"""What the doctor found and could not check: roots with their consequences, as HTML and as bands in figures."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from lit_rlhf.report.numbers import write
from lit_rlhf.report.read import Record, Run
from lit_rlhf.report.text import escape, table

SEVERITIES = ("critical", "warn", "info")


class Told(NamedTuple):
    """A finding of one run: its number on the page, its latest line, its states in order, what it explains."""

    number: int
    run: Run
    record: Record
    states: list[tuple[int, str]]
    consequences: list["Told"]

    @property
    def onset(self) -> tuple[float, float]:
        """Updates between which it began."""
        first, last = self.record.get("onset") or [self.record.get("raised", 0)] * 2
        return float(first), float(last)

    @property
    def severity(self) -> str:
        """How grave it is."""
        severity = self.record.get("severity")
        return severity if severity in SEVERITIES else "info"

    @property
    def metrics(self) -> set[str]:
        """The metrics it is about."""
        return {evidence.get("metric", "") for evidence in self.record.get("evidence") or []}

    def with_consequences(self) -> Iterator["Told"]:
        """Walk over this finding and everything beneath it."""
        yield self
        for told in self.consequences:
            yield from told.with_consequences()


def gather(runs: Sequence[Run]) -> list[Told]:
    """Number the findings of all runs; returns the roots, the gravest of each run first."""
    numbers = count(1)
    return [root for run in runs for root in _roots(run, numbers)]


def _roots(run: Run, numbers: Iterator[int]) -> list[Told]:
    lines: dict[str, list[Record]] = {}
    for record in run.lines.get("findings", []):
        lines.setdefault(str(record.get("kind", "?")), []).append(record)
    latest = {kind: records[-1] for kind, records in lines.items()}
    order = sorted(latest, key=lambda kind: _gravity(latest[kind]))

    def tell(kind: str) -> Told:
        number = next(numbers)
        states = [(int(each.get("step", 0)), str(each.get("state", "open"))) for each in lines[kind]]
        beneath = [tell(other) for other in order if latest[other].get("explained_by") == kind != other]
        return Told(number, run, latest[kind], states, beneath)

    return [tell(kind) for kind in order if latest[kind].get("explained_by") not in latest]


def findings_section(runs: Sequence[Run], roots: Sequence[Told]) -> str:
    """Show the findings of each run, and say so where there are none or nobody looked."""
    parts = []
    for run in runs:
        mine = [root for root in roots if root.run is run]
        heading = f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else ""
        if mine:
            text = "".join(_card(root) for root in mine)
        elif {"findings", "checks"} & set(run.lines):
            text = "<p>The doctor watched this run and found nothing.</p>"
        else:
            text = (
                "<p>This run had no <code>RunDoctor</code>. After the fact: "
                f"<code>python -m lit_rlhf doctor {escape(run.folder)}</code></p>"
            )
        parts.append(heading + text)
    return "".join(parts)


def checks_section(runs: Sequence[Run]) -> str:
    """List the exact checks: what failed, what could not be checked, what was right."""
    rows = []
    for run in runs:
        latest = {str(each["name"]): each for each in run.lines.get("checks", []) if "name" in each}
        for name, each in sorted(latest.items(), key=lambda item: _status(item[1])):
            result = {"ok": "right", "failed": "FAILED", "unknown": "could not be checked"}.get(
                str(each.get("status")), "?"
            )
            row = [escape(name), result, escape(each.get("step", "")), escape(each.get("summary", ""))]
            rows.append([escape(run.name), *row] if len(runs) > 1 else row)
    header = ["check", "result", "after update", "measured"]
    if not rows:
        return "<p>No exact checks were recorded.</p>"
    return table(["run", *header] if len(runs) > 1 else header, rows)


def _card(told: Told) -> str:
    record = told.record
    title = f"{escape(record.get('title', record.get('kind', '?')))}"
    head = (
        f'<h4 id="finding-{told.number}"><span class="badge {told.severity}">{told.number} · {told.severity}</span> '
        f"{title} <small><code>{escape(record.get('kind', ''))}</code></small></h4>"
    )
    parts = [head, f"<p>{escape(record.get('summary', ''))}</p>", f'<p class="quiet">{_course(told)}</p>']
    causes = record.get("causes") or []
    if causes:
        items = "".join(_cause(cause) for cause in causes[:2])
        more = "".join(_cause(cause) for cause in causes[2:])
        rest = f'<details><summary>{len(causes) - 2} less likely</summary><ol start="3">{more}</ol></details>'
        parts.append(f"<ol>{items}</ol>{rest if more else ''}")
    parts += [f"<p>{label}: {escape(_listed(record[key]))}</p>" for label, key in _MORE if record.get(key)]
    if told.consequences:
        parts.append(f'<div class="beneath"><p>Explains:</p>{"".join(_card(each) for each in told.consequences)}</div>')
    return f'<article class="finding {told.severity}">{"".join(parts)}</article>'


_MORE = (
    ("Look at prompts", "sample_ids"),
    ("Could not be checked", "unchecked"),
    ("Last checkpoint from before", "last_good_checkpoint"),
    ("Explained in", "link"),
)


def _course(told: Told) -> str:
    first, last = told.onset
    when = f"at update {first:.0f}" if first == last else f"between updates {first:.0f} and {last:.0f}"
    states = " → ".join(f"{escape(state)} at {step}" for step, state in told.states)
    cost = ", ".join(f"{write(float(value))} {escape(name)}" for name, value in (told.record.get("cost") or {}).items())
    basis = escape(told.record.get("basis", "?"))
    return f"Began {when} ({basis}). {states}.{f' Since then: {cost}.' if cost else ''}"


def _cause(cause: Record) -> str:
    parts = [f"<b>{float(cause.get('weight', 0)):.0%}</b> {escape(cause.get('text', ''))}"]
    labels = (("for", "speaks_for"), ("against", "speaks_against"), ("check", "next_check"), ("set", "setting"))
    parts += [f"<br><i>{label}:</i> {escape(_listed(cause[key]))}" for label, key in labels if cause.get(key)]
    return f"<li>{''.join(parts)}</li>"


def _listed(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _gravity(record: Record) -> tuple[int, int]:
    severity = record.get("severity")
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES), int(record.get("raised", 0))


def _status(record: Record) -> int:
    order = ("failed", "unknown", "ok")
    return order.index(record["status"]) if record.get("status") in order else len(order)
