"""The form of the catalogue: kinds of failure, their causes, and the signs that tell causes apart."""

from collections.abc import Callable
from dataclasses import dataclass

from lit_rlhf_callbacks.symptoms.finding import RankedCause, RunView


@dataclass(frozen=True)
class Sign:
    """Something about a run that makes a cause likelier when it holds, and less likely when it does not.

    Args:
        text: How it reads when it holds.
        holds: None where it cannot be known.
        factor: Likelihood ratio when it holds.
        against: Factor when it does not hold; None leaves the weight alone (absence says nothing).
    """

    text: str
    holds: Callable[[RunView], bool | None]
    factor: float
    against: float | None = None


@dataclass(frozen=True)
class Cause:
    """One reason for a kind of failure.

    Args:
        id: Stable, shared between kinds (``learning_rate_too_high`` explains many).
        text: What is wrong, in a clause.
        prior: Weight before looking at the run, relative to the kind's other causes.
        next_check: What to run or look at, and what it shows if this is the cause.
        signs: What speaks for and against it.
        setting: A function of the run that says what to change, as ``key: old → new``.
    """

    id: str
    text: str
    prior: float
    next_check: str
    signs: tuple[Sign, ...] = ()
    setting: Callable[[RunView], str | None] | None = None


@dataclass(frozen=True)
class Kind:
    """One kind of failure.

    Args:
        id: Stable; a section of the handbook.
        symptom: The manual's letter (A to J), or its section (``§5``).
        title: A few words.
        causes: In order of prior.
        explained_by: Kinds that, when they hold, make this one a consequence.
    """

    id: str
    symptom: str
    title: str
    causes: tuple[Cause, ...]
    explained_by: tuple[str, ...] = ()


def rank(kind: Kind, view: RunView) -> tuple[RankedCause, ...]:
    """Order a kind's causes by prior × what this run's settings, checks and metrics say for and against each.

    A failed exact check that names a cause settles it: its weight is multiplied by 50.
    """
    proven = {result.cause for result in view.checks.values() if result.status == "failed"}
    weighed = []
    for cause in kind.causes:
        weight = cause.prior
        speaks_for: list[str] = []
        speaks_against: list[str] = []
        if cause.id in proven:
            weight *= 50.0
            speaks_for.append("an exact check of this run failed on it")
        for sign in cause.signs:
            holds = sign.holds(view)
            if holds:
                weight *= sign.factor
                (speaks_for if sign.factor >= 1 else speaks_against).append(sign.text)
            elif holds is False and sign.against is not None:
                weight *= sign.against
                (speaks_against if sign.against < 1 else speaks_for).append(f"not seen: {sign.text}")
        setting = cause.setting(view) if cause.setting is not None else None
        weighed.append((weight, cause, tuple(speaks_for), tuple(speaks_against), setting))
    total = sum(weight for weight, *_ in weighed)
    ranked = sorted(weighed, key=lambda entry: -entry[0])
    return tuple(
        RankedCause(cause.id, cause.text, weight / total, pro, contra, cause.next_check, setting)
        for weight, cause, pro, contra, setting in ranked
    )


def unknown_signs(kind: Kind, causes: tuple[RankedCause, ...], view: RunView, num: int = 2) -> tuple[str, ...]:
    """Return the signs of the leading causes that this run's settings and metrics cannot decide."""
    leading = {cause.id for cause in causes[:num]}
    signs = [sign for cause in kind.causes if cause.id in leading for sign in cause.signs]
    return tuple(dict.fromkeys(sign.text for sign in signs if sign.holds(view) is None))
