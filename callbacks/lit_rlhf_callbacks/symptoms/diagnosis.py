"""The engine behind the live callback and the ``doctor`` command: rows and checks in, findings out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lit_rlhf_callbacks.symptoms.catalogue import Kind, rank
from lit_rlhf_callbacks.symptoms.finding import (
    SEVERITIES,
    Alarm,
    CheckResult,
    Evidence,
    Finding,
    RankedCause,
    Rule,
    RunView,
    link_of,
)
from lit_rlhf_callbacks.symptoms.history import History
from lit_rlhf_callbacks.symptoms.onset import find_onset, is_log_like

NUM_TO_CRITICAL = 10  # looks that a statistical alarm must last before it may be critical
NUM_TO_RECOVER = 20  # silent looks
NUM_TO_CLOSE = 60


class Diagnosis:
    """Follow one run.

    Args:
        rules: Called once per row; each returns an alarm while its condition holds.
        kinds: The catalogue, by id.
        facts: What is known of the run (`RunView`).
    """

    def __init__(self, rules: Sequence[Rule], kinds: Mapping[str, Kind], facts: Mapping[str, Any]) -> None:
        self.rules, self.kinds, self.facts = rules, kinds, facts
        self.history = History()
        self.checks: dict[str, CheckResult] = {}
        self.findings: dict[str, Finding] = {}
        self._looks: dict[str, int] = {}  # how long each alarm has lasted
        self._silent: dict[str, int] = {}
        self._broken: dict[str, str] = {}  # rules that raised, and what they said
        self._new_broken: list[tuple[str, str]] = []

    @property
    def view(self) -> RunView:
        """What rules see now."""
        return RunView(self.history, self.facts, self.checks)

    def add_row(self, step: int, row: Mapping[str, float]) -> list[Finding]:
        """Take one update's metrics; return the findings that are new or changed their state."""
        self.history.add(step, row)
        view = self.view
        alarms: dict[str, Alarm] = {}
        for rule in self.rules:
            alarm = self._ask(rule, view)
            if alarm is not None and _is_graver(alarm, alarms.get(alarm.kind)):
                alarms[alarm.kind] = alarm
        changed = [self._raise(alarm, view) for alarm in alarms.values()]
        changed += [self._fall_silent(kind, step) for kind in self.findings.keys() - alarms.keys()]
        return self._explain([finding for finding in changed if finding is not None])

    def add_check(self, result: CheckResult) -> list[Finding]:
        """Take the result of an exact check; a failed one is a finding at once."""
        self.checks[result.name] = result
        if result.status != "failed" or result.kind is None:
            return []
        evidence = tuple(Evidence(name, value) for name, value in result.measured.items())
        alarm = Alarm(result.kind, result.severity, "exact", result.summary, evidence, (result.step, result.step))
        changed = self._raise(alarm, self.view)
        return self._explain([changed] if changed is not None else [])

    def active(self) -> list[Finding]:
        """Return the findings that hold now, roots first, the gravest first."""
        findings = [finding for finding in self.findings.values() if finding.is_active]
        return sorted(findings, key=lambda f: (f.explained_by is not None, -SEVERITIES.index(f.severity), f.raised))

    def anchor(self, step: int) -> None:
        """Let baselines begin anew; findings stay."""
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
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.history = History.from_state(state["history"])
        self.checks = {result["name"]: CheckResult(**result) for result in state["checks"]}
        self.findings = {finding["kind"]: _finding_from(finding) for finding in state["findings"]}
        self._looks, self._silent = dict(state["looks"]), dict(state["silent"])

    def _ask(self, rule: Rule, view: RunView) -> Alarm | None:
        if rule.__name__ in self._broken:
            return None
        try:
            return rule(view)
        except Exception as error:  # whatever a rule trips over, the other rules and the training go on
            self._broken[rule.__name__] = f"{type(error).__name__}: {error}"
            self._new_broken.append((rule.__name__, self._broken[rule.__name__]))
            return None

    def _raise(self, alarm: Alarm, view: RunView) -> Finding | None:
        looks = self._looks[alarm.kind] = self._looks.get(alarm.kind, 0) + 1
        self._silent[alarm.kind] = 0
        severity = alarm.severity
        if severity == "critical" and alarm.basis != "exact" and looks < NUM_TO_CRITICAL:
            severity = "warn"
        known = self.findings.get(alarm.kind)
        if known is None or not known.is_active:
            finding = self._new(replace(alarm, severity=severity), view)
        elif SEVERITIES.index(severity) > SEVERITIES.index(known.severity):
            causes = rank(self.kinds[alarm.kind], view)
            finding = replace(
                known,
                severity=severity,
                basis=alarm.basis,
                summary=alarm.summary,
                evidence=alarm.evidence,
                causes=causes,
                state="worse",
                step=self.history.step,
            )
        else:
            return None
        self.findings[alarm.kind] = finding
        return finding

    def _new(self, alarm: Alarm, view: RunView) -> Finding:
        kind = self.kinds[alarm.kind]
        step = max(self.history.step, alarm.onset[0] if alarm.onset else 0)
        return Finding(
            kind=kind.id,
            symptom=kind.symptom,
            title=kind.title,
            severity=alarm.severity,
            basis=alarm.basis,
            summary=alarm.summary,
            onset=alarm.onset or self._onset(alarm.evidence[0].metric),
            raised=step,
            evidence=alarm.evidence,
            causes=rank(kind, view),
            step=step,
            link=link_of(kind),
        )

    def _onset(self, metric: str) -> tuple[int, int]:
        now = self.history.step
        if not self.history.has(metric):
            return now, now
        trace = self.history[metric].trace
        return find_onset(trace, log=is_log_like([value for _, value in trace])) or (now, now)

    def _fall_silent(self, kind: str, step: int) -> Finding | None:
        self._looks[kind] = 0
        silent = self._silent[kind] = self._silent.get(kind, 0) + 1
        finding = self.findings[kind]
        if finding.basis == "exact" and finding.kind not in _CAN_RECOVER:
            return None  # a failed check holds until it is made again
        if finding.is_active and silent == NUM_TO_RECOVER:
            self.findings[kind] = replace(finding, state="recovered", step=step)
        elif finding.state == "recovered" and silent == NUM_TO_CLOSE:
            self.findings[kind] = replace(finding, state="closed", step=step)
        else:
            return None
        return self.findings[kind]

    def _explain(self, changed: list[Finding]) -> list[Finding]:
        """Attach consequences to their root, also when the root is found later."""
        names = {finding.kind for finding in changed}
        for kind, finding in list(self.findings.items()):
            roots = [root for root in self.kinds[kind].explained_by if root in self.findings and root != kind]
            roots = [root for root in roots if self.findings[root].is_active]
            root = roots[0] if roots and finding.is_active else finding.explained_by
            if root != finding.explained_by:
                self.findings[kind] = replace(finding, explained_by=root)
                names.add(kind)
        return [self.findings[name] for name in self.findings if name in names]


_CAN_RECOVER: frozenset[str] = frozenset({"zero_contrast", "dead_reward", "all_truncated"})


def _is_graver(alarm: Alarm, other: Alarm | None) -> bool:
    return other is None or SEVERITIES.index(alarm.severity) > SEVERITIES.index(other.severity)


def _finding_from(state: Mapping[str, Any]) -> Finding:
    evidence = tuple(Evidence(**{**item, "window": _pair(item["window"])}) for item in state["evidence"])
    causes = tuple(
        RankedCause(
            **{**item, "speaks_for": tuple(item["speaks_for"]), "speaks_against": tuple(item["speaks_against"])}
        )
        for item in state["causes"]
    )
    tuples = {name: tuple(state[name]) for name in ("onset", "sample_ids", "unchecked")}
    return Finding(**{**state, **tuples, "evidence": evidence, "causes": causes})


def _pair(window: Sequence[int] | None) -> tuple[int, int] | None:
    return (window[0], window[1]) if window is not None else None
