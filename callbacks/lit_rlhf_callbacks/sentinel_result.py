"""One set's result: from option scores to what is logged, recorded and said."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lit_rlhf_callbacks.sentinel_sets import Item
from lit_rlhf_callbacks.sentinel_stats import Change, accuracy_and_se, paired_change


class Result(NamedTuple):
    """What one evaluation says of one set.

    Attributes:
        correct: Which items' right option scored best.
        accuracy: Their share.
        accuracy_se: Its binomial standard error.
        margin: Log-prob per token of the right option minus that of the best wrong one, in nats, mean over items.
        change: Since the start of the run.
    """

    correct: list[bool]
    accuracy: float
    accuracy_se: float
    margin: float
    change: Change

    def metrics(self, name: str) -> dict[str, float]:
        """Return what is logged of a set of this name."""
        values = {
            "accuracy": self.accuracy,
            "accuracy_se": self.accuracy_se,
            "margin": self.margin,
            "change": self.change.change,
            "sigma": self.change.sigma,
        }
        return {f"sentinel/{name}/{key}": value for key, value in values.items()}

    def record(self, name: str, step: int, hours: float) -> dict[str, Any]:
        """Return a line of ``sentinels.jsonl``."""
        return {
            "step": step,
            "hours": hours,
            "set": name,
            "n": len(self.correct),
            "accuracy": self.accuracy,
            "se": self.accuracy_se,
            "margin": self.margin if math.isfinite(self.margin) else None,
            **self.change._asdict(),
            "correct": as_marks(self.correct),
        }

    def describe_start(self, name: str, items: Sequence[Item]) -> str:
        """Say where the set starts, and if that is no better than guessing."""
        chance = sum(1 / len(item.options) for item in items) / len(items)
        noise = math.sqrt(chance * (1 - chance) / len(items))
        said = f"{name} {self.accuracy:.3f} ± {self.accuracy_se:.3f} ({len(items)} items)"
        if self.accuracy - chance > 3 * noise:
            return said
        return f"{said}, no better than guessing ({chance:.2f}), so a loss could not show"

    def describe_change(self, name: str) -> str:
        """Say how the set has changed since the start of the run."""
        start = self.accuracy - self.change.change
        return (
            f"{name} went from {start:.3f} to {self.accuracy:.3f} ({self.change.sigma:+.1f} σ: {self.change.num_lost} "
            f"of {len(self.correct)} items lost, {self.change.num_gained} gained)"
        )


def as_marks(correct: Sequence[bool]) -> str:
    """Write right and wrong as 1 and 0, for files and checkpoints."""
    return "".join("1" if right else "0" for right in correct)


def summarise(items: Sequence[Item], scores: Sequence[float], start: str | None) -> Result:
    """Turn the scores of a set's options into its result.

    Args:
        items: The set.
        scores: Of all options of all items, in order; a score that is no number makes its item wrong.
        start: Which items were right at the start of the run, as `as_marks` writes it; None: this is the start.
    """
    margins, place = [], 0
    for item in items:
        own = list(scores[place : place + len(item.options)])
        place += len(item.options)
        margins.append(own.pop(item.answer) - max(own))
    correct = [margin > 0 for margin in margins]
    accuracy, accuracy_se = accuracy_and_se(correct)
    before = [mark == "1" for mark in start] if start is not None else correct
    return Result(correct, accuracy, accuracy_se, sum(margins) / len(margins), paired_change(before, correct))
