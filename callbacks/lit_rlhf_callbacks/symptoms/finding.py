"""What the doctor says: alarms of rules, results of exact checks, and findings that keep their state over a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lit_rlhf_callbacks.symptoms.history import History

if TYPE_CHECKING:
    from lit_rlhf_callbacks.symptoms.catalogue import Kind

Severity = Literal["info", "warn", "critical"]
Basis = Literal["exact", "statistical", "inferred"]
State = Literal["open", "worse", "recovered", "closed"]
SEVERITIES: tuple[Severity, ...] = ("info", "warn", "critical")


@dataclass(frozen=True)
class Evidence:
    """One number behind a finding, so that a report can draw it."""

    metric: str
    value: float
    baseline: float | None = None
    threshold: float | None = None
    unit: str = ""
    window: tuple[int, int] | None = None  # steps


@dataclass(frozen=True)
class Alarm:
    """What a rule raises while its condition holds.

    Args:
        kind: A key of the catalogue.
        severity: As far as this rule is concerned; a statistical critical needs two looks.
        basis: ``exact`` follows from definitions, ``statistical`` from noise, ``inferred`` from circumstances.
        summary: One sentence with the numbers.
        evidence: The first one's metric is where the onset is looked for.
        onset: Steps, when the rule knows them; else the engine fits them.
    """

    kind: str
    severity: Severity
    basis: Basis
    summary: str
    evidence: tuple[Evidence, ...]
    onset: tuple[int, int] | None = None


@dataclass(frozen=True)
class CheckResult:
    """What one exact check found.

    Args:
        name: The check.
        status: ``ok``, ``failed``, or ``unknown`` when its input was not offered.
        step: Update after which it ran.
        summary: One sentence: what was measured, what was expected.
        kind: Of the catalogue, when it failed.
        cause: Id of the cause it proves or makes likely, when it failed.
        severity: When it failed.
        measured: The numbers by name.
    """

    name: str
    status: Literal["ok", "failed", "unknown"]
    step: int
    summary: str
    kind: str | None = None
    cause: str | None = None
    severity: Severity = "critical"
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunView:
    """What rules may look at.

    Args:
        history: The metrics.
        facts: Flat settings and facts by dotted name (``algorithm``, ``stage``, ``beta``, ``group_size``,
            ``optimizer.lr``, ``precision``, …); a name that is missing is unknown.
        checks: The latest result of each exact check.
        answers: To questions that several rules ask of a row (`gains`).
    """

    history: History
    facts: Mapping[str, Any]
    checks: Mapping[str, CheckResult]
    answers: dict[Any, Any] = field(default_factory=dict)

    def check_failed(self, name: str) -> bool | None:
        """Tell whether an exact check failed; None when it has not been made."""
        result = self.checks.get(name)
        return None if result is None or result.status == "unknown" else result.status == "failed"


Rule = Callable[[RunView], Alarm | None]


@dataclass(frozen=True)
class RankedCause:
    """A cause as it stands in this run.

    Args:
        id: Of the catalogue.
        text: What is wrong.
        weight: Share of belief among the kind's causes; they add up to 1.
        speaks_for: Signs of this run that make it likelier.
        speaks_against: Signs that make it less likely.
        next_check: What to run, and what it would show.
        setting: What to change, as ``key: old → new``.
    """

    id: str
    text: str
    weight: float
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    next_check: str
    setting: str | None = None


@dataclass
class Finding:
    """One named failure of a run, from the moment it is raised; a line of ``findings.jsonl`` per change of state."""

    kind: str
    symptom: str
    title: str
    severity: Severity
    basis: Basis
    summary: str
    onset: tuple[int, int]
    raised: int
    evidence: tuple[Evidence, ...]
    causes: tuple[RankedCause, ...]
    state: State = "open"
    step: int = 0  # of the latest change of state
    explained_by: str | None = None
    sample_ids: tuple[int, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)  # updates, completions, hours since the onset
    unchecked: tuple[str, ...] = ()
    last_good_checkpoint: str | None = None
    link: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it holds now."""
        return self.state in ("open", "worse")


def link_of(kind: "Kind") -> str:
    """Return the place in the handbook that explains a kind."""
    return f"docs/handbook.md#{kind.id.replace('_', '-')}"
