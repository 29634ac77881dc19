"""The whole page: what is seen first, then curves, findings, samples and records."""

from collections.abc import Sequence

from lit_rlhf.report.figures import figures_section, letter
from lit_rlhf.report.findings import Told, checks_section, findings_section, gather
from lit_rlhf.report.numbers import write
from lit_rlhf.report.panels import panels_section
from lit_rlhf.report.read import Run
from lit_rlhf.report.record import difference_section, equal_hours_section, record_section
from lit_rlhf.report.sentinels import sentinels_section
from lit_rlhf.report.style import CSS
from lit_rlhf.report.text import escape

_HEADLINES = (
    ("eval/pass_at_1", "held-out pass@1"),
    ("reward", "reward"),
    ("eval/rewards/accuracies", "held-out accuracy"),
    ("eval/accuracy", "held-out accuracy"),
    ("eval/nll", "held-out nll"),
    ("loss", "loss"),
)
NUM_HEADLINES = 2


def page(runs: Sequence[Run]) -> str:
    """Write the page of one run, or of several laid over one another.

    Args:
        runs: In the order of the colours; the first is what others are compared with.
    """
    roots = gather(runs)
    title = ", ".join(run.name for run in runs)
    several = len(runs) > 1
    sections = [
        ("curves", "Curves", figures_section(runs, roots)),
        ("findings", "Findings", findings_section(runs, roots)),
        ("equal-hours", "At equal hours", equal_hours_section(runs) if several else ""),
        ("settings", "Settings that differ", difference_section(runs) if several else ""),
        ("sentinels", "Sentinels", sentinels_section(runs)),
        ("samples", "Samples side by side", panels_section(runs)),
        ("checks", "Exact checks", checks_section(runs)),
        ("record", "Run record", record_section(runs)),
    ]
    shown = [(name, heading, content) for name, heading, content in sections if content]
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in shown)
    body = "".join(f'<section id="{name}"><h2>{heading}</h2>{content}</section>' for name, heading, content in shown)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body>"
        f"{_AXIS}<header><h1>{escape(_heading(runs))}</h1>"
        f"{''.join(_run(run, number, roots, several) for number, run in enumerate(runs))}"
        f"<nav>{links}</nav></header><main>{body}</main></body></html>\n"
    )


# Radio buttons before everything they switch: a choice without a script.
_AXIS = (
    '<div class="axis" role="radiogroup" aria-label="x axis"><span>x axis</span>'
    '<input type="radio" name="axis" id="x-step" checked><label for="x-step">updates</label>'
    '<input type="radio" name="axis" id="x-hours"><label for="x-hours">hours</label></div>'
)


def _heading(runs: Sequence[Run]) -> str:
    return runs[0].name if len(runs) == 1 else f"{len(runs)} runs"


def _run(run: Run, number: int, roots: Sequence[Told], several: bool) -> str:
    """Say of one run what it is and how it stands."""
    record = run.record
    facts = record.get("run") if isinstance(record.get("run"), dict) else {}
    told = [escape(facts[key]) for key in ("algorithm", "model") if facts and facts.get(key)]
    steps = [step for values in run.columns.values() for step, _ in values[-1:]]
    told += [f"{max(steps)} updates"] if steps else []
    if hours := run.columns.get("hours"):
        told.append(f"{write(hours[-1][1])} h" if hours[-1][1] >= 1 else f"{write(hours[-1][1] * 60)} min")
    told += [escape(record["status"])] if record.get("status") else []
    key = f'<span class="key c{number % 7}">{letter(number)}</span> <b>{escape(run.name)}</b>: ' if several else ""
    note = f'<p class="note">{escape(record["note"])}</p>' if record.get("note") else ""
    unread = "".join(f'<p class="unread">{escape(each)}.</p>' for each in run.notes)
    tiles = "".join([*_headlines(run), _tile_of_findings(run, roots)])
    below = f'{note}{unread}<div class="tiles">{tiles}</div>{_shortly(run, roots)}'
    return f'<div class="run"><p>{key}{" · ".join(told)}</p>{below}</div>'


def _headlines(run: Run) -> list[str]:
    tiles: list[str] = []
    for name, label in _HEADLINES:
        values = run.columns.get(name)
        if values and len(tiles) < NUM_HEADLINES and not (name == "loss" and tiles):
            error = dict(run.columns.get(f"{name}_se", [])).get(values[-1][0])
            told = f" <small>± {write(error)}</small>" if error is not None else ""
            tiles.append(_tile(label, f"{write(values[0][1])} → {write(values[-1][1])}{told}"))
    return tiles


def _tile_of_findings(run: Run, roots: Sequence[Told]) -> str:
    if not {"findings", "checks"} & set(run.lines):
        return _tile("findings", "not looked for")
    mine = [root for root in roots if root.run is run]
    counts = {severity: sum(root.severity == severity for root in mine) for severity in ("critical", "warn", "info")}
    return _tile("findings", ", ".join(f"{num} {severity}" for severity, num in counts.items() if num) or "none")


def _shortly(run: Run, roots: Sequence[Told]) -> str:
    items = [
        f'<li><a href="#finding-{root.number}">{root.number} · {root.severity}</a> '
        f"{escape(root.record.get('title', ''))}"
        for root in roots
        if root.run is run and root.severity != "info"
    ]
    return f'<ul class="shortly">{"</li>".join(items)}</li></ul>' if items else ""


def _tile(label: str, value: str) -> str:
    return f'<div class="tile"><span>{label}</span><strong>{value}</strong></div>'
