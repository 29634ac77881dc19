"""What a run minimises and what it should gain, told from its facts or, in a foreign log, from its columns."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from lit_rlhf_callbacks.symptoms.finding import RunView

Stage = Literal["sft", "preference", "reward_model", "rl"]
OFFLINE: tuple[Stage, ...] = ("sft", "preference", "reward_model")
_LOSSES: dict[Stage, tuple[str, ...]] = {
    "sft": ("nll", "loss"),
    "preference": ("preference_loss", "loss"),
    "reward_model": ("reward_loss", "loss"),
}
_ACCURACIES: dict[Stage, str] = {
    "sft": "mean_token_accuracy",
    "preference": "rewards/accuracies",
    "reward_model": "accuracy",
}


class Mean(NamedTuple):
    """A mean of rows and its standard error, taking rows as independent."""

    value: float
    error: float


def mean_of(values: Sequence[float]) -> Mean:
    """Average rows.

    Example:
        >>> mean_of([1.0, 3.0])
        Mean(value=2.0, error=1.0)
    """
    num = len(values)
    center = sum(values) / num
    if num < 2:
        return Mean(center, math.inf)
    return Mean(center, math.sqrt(sum([(value - center) ** 2 for value in values]) / (num - 1) / num))


def rise_of(before: Sequence[float], after: Sequence[float]) -> Mean:
    """Return by how much the mean of rows rose, and the standard error of that difference.

    Example:
        >>> rise_of([1.0, 3.0], [2.0, 4.0]).value
        1.0
    """
    first, late = mean_of(before), mean_of(after)
    return Mean(late.value - first.value, math.hypot(first.error, late.error))


def stage_of(view: RunView) -> Stage | None:
    """Return what kind of training this is; None where neither facts nor columns tell."""
    stage = view.facts.get("stage")
    if stage in ("sft", "preference", "reward_model"):
        return stage
    if stage is not None:
        return "rl"
    series = view.history.series
    if "rewards/margins" in series:
        return "preference"
    if "reward" in series:
        return "rl"
    if "reward_loss" in series:
        return "reward_model"
    return "sft" if "mean_token_accuracy" in series or "nll" in series else None


def loss_name(view: RunView, prefix: str = "") -> str | None:
    """Return the metric that an offline run minimises; ``prefix`` is ``eval/`` for the held-out one."""
    stage = stage_of(view)
    names = _LOSSES.get(stage, ()) if stage is not None else ()
    if not prefix and view.facts.get("model.nll_coef"):
        names = ("loss",)  # the likelihood is a part of what is minimised
    return next((prefix + name for name in names if prefix + name in view.history.series), None)


def accuracy_name(view: RunView) -> str | None:
    """Return the metric that says how often an offline run is right."""
    stage = stage_of(view)
    name = _ACCURACIES.get(stage) if stage is not None else None
    return name if name in view.history.series else None


def known_start(view: RunView, name: str) -> float | None:
    """Return where a loss began: by definition where the run says so, else its first held-out or first value.

    The first row of a run was computed before its first update, and so was the evaluation before it.
    """
    bare = name.removeprefix("eval/")
    known = view.facts.get(f"step0.{bare}")
    if isinstance(known, int | float):
        return float(known)
    return view.history[name].start[0] if view.history.has(name) else None


def num_updates(view: RunView) -> float:
    """Return updates since the anchor, whatever was logged of them."""
    return view.history.num_rows * view.history.stride()


def distance_name(view: RunView) -> str | None:
    """Return the metric that says how far the policy has moved, in nats per token."""
    if view.facts.get("algorithm") == "KTO":
        return None  # its KL is over strangers' completions, and cut at 0
    return next((name for name in ("kl", "drift/forward_kl") if view.history.has(name)), None)


def first_update(view: RunView) -> int:
    """Return the step of the first row that an update made."""
    return max(1, view.history.first_step or 1)
