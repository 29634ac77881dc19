"""The engine behind the live callback and the ``doctor`` command: rows and checks in, findings out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lit_rlhf_callbacks.symptoms.catalogue import Kind, rank, unknown_signs
from lit_rlhf_callbacks.symptoms.finding import (
    SEVERITIES,
    Alarm,
    CheckResult,
    Evidence,
    Finding,
    Rule,
    RunView,
    link_of,
)
from lit_rlhf_callbacks.symptoms.graph import explain
from lit_rlhf_callbacks.symptoms.history import History
from lit_rlhf_callbacks.symptoms.onset import find_onset, is_log_like
from lit_rlhf_callbacks.symptoms.saved import finding_from

NUM_TO_CRITICAL = 10  # looks that a statistical alarm must last before it may be critical
NUM_TO_RECOVER = 20  # silent looks
NUM_TO_CLOSE = 60


class Diagnosis:
    """Follow one run.

    A finding is *open* when it is raised, *worse* when it becomes graver or proven, *recovered* after 20 looks without
    its alarm (or when the exact check behind it passes), *closed* after 60, and open again when the alarm returns.

    Args:
        rules: Called once per row; each returns an alarm while its condition holds.
        kinds: The catalogue, by id.
        facts: What is known of the run (`RunView`).

    Attributes:
        findings: The latest of each kind.
        armed: For each rule that could look at what it needs, in how many rows.
        missing: For each rule, the metrics it has asked for that were not there.
        names: Of all metrics that any row had.
    """

    def __init__(self, rules: Sequence[Rule], kinds: Mapping[str, Kind], facts: Mapping[str, Any]) -> None:
        self.rules, self.kinds, self.facts = rules, kinds, facts
        self.history = History()
        self.checks: dict[str, CheckResult] = {}
        self.findings: dict[str, Finding] = {}
        self.armed: dict[str, int] = {}
        self.missing: dict[str, set[str]] = {}
        self.names: set[str] = set()
        self._known, self._num_checks = (0, 0), 0  # metrics and checks there are
        self._idle: dict[str, tuple[int, int]] = {}  # rules that wait for metrics, and what was known when they did
        self._looks: dict[str, int] = {}  # how long each alarm has lasted
        self._silent: dict[str, int] = {}
        self._failing: dict[str, list[str]] = {}  # per kind, the exact checks that fail
        self._broken: dict[str, str] = {}  # rules that raised, and what they said
        self._new_broken: list[tuple[str, str]] = []

    @property
    def view(self) -> RunView:
        """What rules see now."""
        return RunView(self.history, self.facts, self.checks)

    def add_row(self, step: int, row: Mapping[str, float]) -> list[Finding]:
        """Take one update's metrics; return the findings that are new or changed their state."""
        self.history.add(step, row)
        self.names.update(row)
        self._known = len(self.history.series), self._num_checks
        view = self.view
        alarms: dict[str, Alarm] = {}
        for rule in self.rules:
            alarm = self._ask(rule, view)
            if alarm is not None and (alarm.kind not in alarms or _weight(alarm) > _weight(alarms[alarm.kind])):
                alarms[alarm.kind] = alarm
        changed = [self._raise(alarm, view) for alarm in alarms.values()]
        changed += [self._fall_silent(kind, step) for kind in self.findings.keys() - alarms.keys()]
        return self._explained(changed)

    def add_check(self, result: CheckResult) -> list[Finding]:
        """Take the result of an exact check; a failed one is a finding at once, and over when it passes again."""
        self.checks[result.name] = result
        self._num_checks += 1
        if result.status == "failed" and result.kind is not None and result.kind in self.kinds:
            failing = self._failing.setdefault(result.kind, [])
            failing += [result.name] if result.name not in failing else []
            evidence = tuple(Evidence(name, value) for name, value in result.measured.items())
            onset = (result.step, result.step)
            alarm = Alarm(result.kind, result.severity, "exact", result.summary, evidence, onset)
            return self._explained([self._raise(alarm, self.view, step=result.step)])
        if result.status != "ok":
            return []
        return self._explained(
            [self._pass(kind, result) for kind in self._failing if result.name in self._failing[kind]]
        )

    def active(self) -> list[Finding]:
        """Return the findings that hold now, roots first, the gravest first."""
        findings = [finding for finding in self.findings.values() if finding.is_active]
        return sorted(findings, key=lambda f: (f.explained_by is not None, -SEVERITIES.index(f.severity), f.raised))

    def anchor(self, step: int) -> None:
        """Let baselines begin anew; findings stay."""
        self._idle.clear()
        self.history.anchor(step)

    def take_broken(self) -> list[tuple[str, str]]:
        """Return rules that have failed since the last call, each with its error; they are not asked again."""
        broken, self._new_broken = self._new_broken, []
        return broken

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {
            "history": self.history.state(),
            "checks": [asdict(result) for result in self.checks.values()],
            "findings": [asdict(finding) for finding in self.findings.values()],
            "looks": dict(self._looks),
            "silent": dict(self._silent),
            "failing": {kind: list(names) for kind, names in self._failing.items()},
            "armed": dict(self.armed),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.history = History.from_state(state["history"])
        self.checks = {result["name"]: CheckResult(**result) for result in state["checks"]}
        found = [finding_from(finding) for finding in state["findings"] if finding["kind"] in self.kinds]
        self.findings = {finding.kind: finding for finding in found}
        self._looks, self._silent = dict(state["looks"]), dict(state["silent"])
        self._failing = {kind: list(names) for kind, names in state["failing"].items()}
        self.armed = dict(state["armed"])

    def _ask(self, rule: Rule, view: RunView) -> Alarm | None:
        name, asked = rule.__name__, self.history.asked
        if name in self._broken or self._idle.get(name) == self._known:
            return None
        asked.begin()
        try:
            alarm = rule(view)
            if alarm is not None and alarm.kind not in self.kinds:
                raise KeyError(f"no kind {alarm.kind} in the catalogue")
        except Exception as error:  # whatever a rule trips over, the other rules and the training go on
            self._broken[name] = f"{type(error).__name__}: {error}"
            self._new_broken.append((name, self._broken[name]))
            return None
        if alarm is not None or asked.could_look:
            self.armed[name] = self.armed.get(name, 0) + 1
        if asked.missing:
            self.missing.setdefault(name, set()).update(asked.missing)
        if alarm is None and asked.only_missing:
            self._idle[name] = self._known
        return alarm

    def _raise(self, alarm: Alarm, view: RunView, step: int | None = None) -> Finding | None:
        """Turn an alarm into a finding, or make a known one worse; None when it is no news."""
        step = self.history.step if step is None else max(step, self.history.step)
        looks = self._looks[alarm.kind] = self._looks.get(alarm.kind, 0) + 1
        self._silent[alarm.kind] = 0
        if alarm.severity == "critical" and alarm.basis != "exact" and looks < NUM_TO_CRITICAL:
            alarm = replace(alarm, severity="warn")
        known = self.findings.get(alarm.kind)
        if known is not None and known.is_active and _weight(alarm) <= _weight(known):
            return None
        kind = self.kinds[alarm.kind]
        causes = rank(kind, view)
        is_worse = known is not None and known.is_active
        onset = known.onset if known is not None and is_worse else self._onset(alarm, known)
        finding = Finding(
            kind=kind.id,
            symptom=kind.symptom,
            title=kind.title,
            severity=alarm.severity,
            basis=alarm.basis,
            summary=alarm.summary,
            onset=onset,
            raised=known.raised if known is not None and is_worse else step,
            evidence=alarm.evidence,
            causes=causes,
            state="worse" if is_worse else "open",
            step=step,
            explained_by=known.explained_by if known is not None and is_worse else None,
            sample_ids=known.sample_ids if known is not None and is_worse else (),
            cost=self._cost(onset[0], step),
            unchecked=unknown_signs(kind, causes, view),
            link=link_of(kind),
        )
        self.findings[alarm.kind] = finding
        return finding

    def _onset(self, alarm: Alarm, known: Finding | None) -> tuple[int, int]:
        """Return the steps the rule knows, or those that the first evidence's metric shows."""
        now, series = self.history.step, self.history.series.get(alarm.evidence[0].metric) if alarm.evidence else None
        if alarm.onset is not None or series is None:
            return alarm.onset or (now, now)
        since = known.step if known is not None else -1  # a fault that comes back began after it was over
        trace = [point for point in series.shape() if point[0] > since]
        return find_onset(trace, log=is_log_like([value for _, value in trace])) or (now, now)

    def _cost(self, since: int, step: int) -> dict[str, float]:
        cost: dict[str, float] = {"updates": step - since + 1}
        if isinstance(num := self.facts.get("window.num_completions"), int):
            cost["completions"] = cost["updates"] * num
        hours = self.history.series.get("hours")
        if hours is not None and hours.count:
            before = [value for at, value in hours.trace if at < since]
            cost["hours"] = hours.last - (before[-1] if before else hours.start[0])
        return cost

    def _fall_silent(self, kind: str, step: int) -> Finding | None:
        finding = self.findings[kind]
        if self._failing.get(kind):
            return None  # a failed check holds until it passes
        self._looks[kind] = 0
        silent = self._silent[kind] = self._silent.get(kind, 0) + 1
        if finding.is_active and silent >= NUM_TO_RECOVER:
            return self._end(finding, "recovered", step)
        if finding.state == "recovered" and silent >= NUM_TO_CLOSE:
            return self._end(finding, "closed", step)
        return None

    def _pass(self, kind: str, result: CheckResult) -> Finding | None:
        """Take back one of the checks behind a finding; without any, and without an alarm, it is over."""
        self._failing[kind].remove(result.name)
        finding = self.findings.get(kind)
        is_over = not self._failing[kind] and finding is not None and finding.is_active and finding.basis == "exact"
        return self._end(finding, "recovered", result.step) if is_over and finding is not None else None

    def _end(self, finding: Finding, state: Any, step: int) -> Finding:
        self.findings[finding.kind] = replace(finding, state=state, step=step)
        return self.findings[finding.kind]

    def _begin_with_consequences(self, root: str) -> None:
        """Date a root by what it explains: a fault often shows in the reward long before it shows in the text.

        What has held since the first row is left out: such rules know no other onset.
        """
        finding, first = self.findings[root], (self.history.first_step or 0) + 1
        dated = [
            other.onset
            for other in self.findings.values()
            if other.explained_by == root and other.is_active and first < other.onset[0] < finding.onset[0]
        ]
        if dated and finding.is_active:
            self.findings[root] = replace(finding, onset=min(dated))

    def _explained(self, changed: Sequence[Finding | None]) -> list[Finding]:
        """Attach consequences to their root, also when it is found later; return all that changed."""
        names = {finding.kind for finding in changed if finding is not None}
        if names:
            for kind, root in explain(self.findings, self.kinds).items():
                if root != self.findings[kind].explained_by:
                    self.findings[kind] = replace(self.findings[kind], explained_by=root)
                    names.add(kind)
            for root in [name for name in self.findings if name in names]:  # in order, on every rank
                self._begin_with_consequences(root)
        return [finding for name, finding in self.findings.items() if name in names]


def _weight(alarm: Alarm | Finding) -> tuple[int, bool]:
    """Say how much an alarm counts beside others of its kind: its severity, then whether it is proven."""
    return SEVERITIES.index(alarm.severity), alarm.basis == "exact"
