"""Whether a reward model scores texts and nothing else: not their place in the batch, not their length alone."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.checks.tokens import Tokens
from lit_rlhf_callbacks.symptoms.finding import CheckResult
from lit_rlhf_callbacks.symptoms.robust import wilson

TOLERANCE, HALF_TOLERANCE = 1e-3, 0.1  # of the scores' own spread, or of 1
ENOUGH_PAIRS = 60
ENOUGH_SHORT = 20  # pairs in which the shorter one is better
SIGMAS = 3.0


class PairCounts(NamedTuple):
    """How many pairs a reward model ranks right, by which of the two is longer."""

    long_right: float
    long: int
    short_right: float
    short: int
    even_right: float
    even: int


def check_swap(
    score: Callable[[Tokens], Tensor], tokens: Tokens, *, tolerance: float = TOLERANCE, step: int = 0
) -> CheckResult:
    """Score a batch, and once more with its rows in reverse order: each text must keep its score.

    Args:
        score: From tokens to ``[B]``.
        tokens: ``[B, T]`` and ``[B]`` tensors.
        tolerance: Largest difference, relative to the scores' standard deviation or to 1.
        step: Updates made.
    """
    name = "reward_model_swap"
    scores, swapped = score(tokens), score({key: value.flip(0) for key, value in tokens.items()}).flip(0)
    if len(scores) < 2:
        return unknown(name, step, "fewer than two rows")
    difference = float((scores - swapped).abs().max())
    limit = tolerance * max(1.0, float(scores.std()))
    numbers = {"largest_difference": difference, "spread": float(scores.std())}
    if difference > limit:
        text = (
            f"scores change by up to {difference:.2g} when the rows of a batch are reversed: they depend on the place"
        )
        return failed(name, step, "reward_model_order", "depends_on_place", text, numbers)
    return passed(name, step, f"scores stay when rows are reversed (largest difference {difference:.1e})", numbers)


def count_pairs(rewards: Tensor, lengths: Tensor, chosen_mask: Tensor) -> PairCounts | None:
    """Count right rankings; None unless rows alternate between chosen and rejected.

    Args:
        rewards: ``[2B]``.
        lengths: ``[2B]`` tokens of each completion.
        chosen_mask: ``[2B]`` bool.
    """
    if len(rewards) % 2 or not bool(chosen_mask[0::2].all()) or bool(chosen_mask[1::2].any()):
        return None
    gaps = (rewards[0::2] - rewards[1::2]).float()
    right = 0.5 * (gaps.sign() + 1)
    longer = (lengths[0::2] - lengths[1::2]).sign()
    masks = longer > 0, longer < 0, longer == 0
    counts = [number for mask in masks for number in (float(right[mask].sum()), int(mask.sum()))]
    return PairCounts(*counts)  # type: ignore[arg-type]


def add_counts(counts: list[PairCounts]) -> PairCounts:
    """Add counts of several windows."""
    return PairCounts(*(sum(column) for column in zip(*counts, strict=True)))


def check_order_at_start(counts: PairCounts, *, step: int = 0) -> CheckResult:
    """Check that a reward model trained before does not start by preferring the rejected answers.

    Args:
        counts: Over the first windows. A new head tells nothing: give only those of a model that was one already.
        step: Updates made.
    """
    name = "reward_model_order"
    total = counts.long + counts.short + counts.even
    if total < ENOUGH_PAIRS:
        return unknown(name, step, f"only {total} pairs so far")
    accuracy = (counts.long_right + counts.short_right + counts.even_right) / total
    text = f"at the start {accuracy:.0%} of {total} pairs are ranked right"
    if wilson(accuracy * total, total, SIGMAS)[1] < 0.5:
        why = "a trained reward model ranks them the other way, so the labels are swapped here or were there"
        return failed(
            name, step, "reward_model_order", "labels_swapped", f"{text}: {why}", {"accuracy": accuracy, "pairs": total}
        )
    return passed(name, step, text, {"accuracy": accuracy, "pairs": total})


def check_length_only(counts: PairCounts, *, step: int = 0) -> CheckResult:
    """Check that pairs in which the shorter answer is better are not ranked worse than by chance.

    Args:
        counts: Over the latest windows.
        step: Updates made.
    """
    name = "reward_model_length"
    if counts.short < ENOUGH_SHORT or counts.long < ENOUGH_SHORT:
        return unknown(name, step, f"{counts.short} pairs with a shorter and {counts.long} with a longer chosen answer")
    short, long = counts.short_right / counts.short, counts.long_right / counts.long
    numbers = {"accuracy_shorter_chosen": short, "accuracy_longer_chosen": long}
    text = f"right in {long:.0%} of {counts.long} pairs with the longer answer chosen, in {short:.0%} of {counts.short}"
    text += " with the shorter one"
    if wilson(counts.short_right, counts.short, SIGMAS)[1] < 0.5 and long > 0.8:
        return failed(name, step, "reward_model_length_only", "length_bias", text, numbers, "warn")
    return passed(name, step, text, numbers)


def completion_lengths(tokens: Tokens) -> Tensor:
    """Return each row's real tokens, ``[B]``: prompts of a pair are the same, so the difference is the answers'."""
    return tokens["attention_mask"].sum(-1) if "attention_mask" in tokens else torch.zeros(len(tokens["input_ids"]))
