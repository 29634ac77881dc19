"""Short questions about a run that signs and rules share; None where the run does not say."""

from collections.abc import Callable
from statistics import median

from lit_rlhf_callbacks.symptoms.finding import RunView

Holds = Callable[[RunView], bool | None]
NUM_LATE = 15  # rows that say where a metric is now


def number(view: RunView, *names: str) -> float | None:
    """Return the first of these facts that is known and a number."""
    for name in names:
        value = view.facts.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def start_of(view: RunView, metric: str) -> float | None:
    """Return where a metric began: the median of its first three values."""
    return median(view.history[metric].start) if view.history.has(metric) else None


def level_of(view: RunView, metric: str, num_rows: int = NUM_LATE) -> float | None:
    """Return the median of a metric's last values."""
    return view.history[metric].recent_median(num_rows) if view.history.has(metric) else None


def fact_above(name: str, bound: float) -> Holds:
    """Ask whether a numeric fact lies above a bound."""

    def holds(view: RunView) -> bool | None:
        value = number(view, name)
        return None if value is None else value > bound

    return holds


def fact_below(name: str, bound: float) -> Holds:
    """Ask whether a numeric fact lies below a bound."""

    def holds(view: RunView) -> bool | None:
        value = number(view, name)
        return None if value is None else value < bound

    return holds


def fact_is(name: str, *values: object) -> Holds:
    """Ask whether a fact has one of these values."""

    def holds(view: RunView) -> bool | None:
        return view.facts[name] in values if name in view.facts else None

    return holds


def above(metric: str, bound: float, num_rows: int = NUM_LATE) -> Holds:
    """Ask whether a metric's recent median lies above a bound."""

    def holds(view: RunView) -> bool | None:
        value = level_of(view, metric, num_rows)
        return None if value is None else value > bound

    return holds


def below(metric: str, bound: float, num_rows: int = NUM_LATE) -> Holds:
    """Ask whether a metric's recent median lies below a bound."""

    def holds(view: RunView) -> bool | None:
        value = level_of(view, metric, num_rows)
        return None if value is None else value < bound

    return holds


def rose(metric: str, *, by: float = 0.0, times: float = 1.0) -> Holds:
    """Ask whether a metric's recent median exceeds ``times`` its start by more than ``by``."""

    def holds(view: RunView) -> bool | None:
        start, now = start_of(view, metric), level_of(view, metric)
        return None if start is None or now is None else now > times * start + by

    return holds


def fell(metric: str, *, by: float = 0.0, times: float = 1.0) -> Holds:
    """Ask whether a metric's recent median lies below ``times`` its start by more than ``by``."""

    def holds(view: RunView) -> bool | None:
        start, now = start_of(view, metric), level_of(view, metric)
        return None if start is None or now is None else now < times * start - by

    return holds


def check_failed(name: str) -> Holds:
    """Ask whether an exact check failed."""
    return lambda view: view.check_failed(name)


def change(key: str, fact: str, new: Callable[[float], float]) -> Callable[[RunView], str | None]:
    """Build the advice ``key: old → new`` from a numeric fact; silent where the fact is unknown.

    Args:
        key: As a user writes it in a config or on the command line.
        fact: Where the present value stands.
        new: From the present value to the one to try.
    """

    def setting(view: RunView) -> str | None:
        old = number(view, fact)
        return None if old is None else f"{key}: {old:g} → {new(old):.3g}"

    return setting
