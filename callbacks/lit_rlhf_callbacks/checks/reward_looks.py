"""The checks of reward models, wired to the protocol, and the pairs they remember."""

from collections.abc import Iterator
from typing import Any

from lit_rlhf_callbacks.checks.look import Look
from lit_rlhf_callbacks.checks.reward_model import (
    HALF_TOLERANCE,
    TOLERANCE,
    PairCounts,
    add_counts,
    check_length_only,
    check_order_at_start,
    check_swap,
    completion_lengths,
    count_pairs,
)
from lit_rlhf_callbacks.checks.tokens import Tokens
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NUM_WINDOWS = 20  # remembered
FIRST_WINDOWS = 3
LEARNED_BY = 50  # updates before what a model learned is judged


class RewardLooks:
    """Counts the pairs of the latest updates, and judges them when a look is due."""

    def __init__(self) -> None:
        self.counts: list[PairCounts] = []

    def note(self, tokens: Tokens) -> list[CheckResult]:
        """Take a micro-batch's pairs, scored before its update; there is nothing to judge yet."""
        if {"rewards", "chosen_mask", "attention_mask"} <= set(tokens):
            counts = count_pairs(tokens["rewards"], completion_lengths(tokens), tokens["chosen_mask"])
            if counts is not None:
                self.counts = [*self.counts, counts][-NUM_WINDOWS:]
        return []

    def checks(self, look: Look) -> Iterator[CheckResult]:
        """Make those whose inputs are offered."""
        if look.stage != "reward_model":
            return
        score = look.scorer("score_rewards")
        if score is not None:
            yield check_swap(score, look.rows, tolerance=HALF_TOLERANCE if look.is_half else TOLERANCE, step=look.step)
        if not self.counts:
            return
        if look.step == FIRST_WINDOWS and look.facts.get("is_new_head") is False:
            yield check_order_at_start(add_counts(self.counts), step=look.step)
        if look.step >= LEARNED_BY:
            yield check_length_only(add_counts(self.counts), step=look.step)

    def state_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"counts": [list(counts) for counts in self.counts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.counts = [PairCounts(*counts) for counts in state["counts"]]
