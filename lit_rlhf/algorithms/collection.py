"""From prompts to scored completions worth training on: sampling, scoring and dynamic sampling."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.phase_metrics import add_phase_metrics
from lit_rlhf.algorithms.ranks import gather_over_ranks, sum_over_ranks
from lit_rlhf.data.seed import global_seed
from lit_rlhf.rollout import NoiseKey
from lit_rlhf.rollout.scored import Row, ScoredRollout, Scorer
from lit_rlhf_callbacks.errors import UserError


class PromptSource(Protocol):
    """Where replacement prompts come from."""

    def extra_prompts(self, exclude: set[int], num: int, phase: int, attempt: int) -> list[Row]:
        """Return at most ``num`` unused rows, the same on every rank."""


@dataclass(kw_only=True)
class Collector:
    """Collect one phase's completions on this rank.

    Attributes:
        scorer: Samples and scores.
        group_size: Completions per prompt.
        needs_groups: Whether a group of one is useless.
        drop_zero_std: Whether a group whose rewards are all the same is left out.
        max_refill_rounds: How often left-out groups are replaced.
        reward_seconds: Time spent in reward functions by the last call of `collect`.
    """

    scorer: Scorer
    group_size: int
    needs_groups: bool
    drop_zero_std: bool
    max_refill_rounds: int
    reward_seconds: float = field(default=0.0, init=False)
    _validity: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.long), init=False)  # invalid, all

    def collect(
        self, rows: Sequence[Row], source: PromptSource, phase: int, meter: WindowMeter, rank: int, num_ranks: int
    ) -> ScoredRollout:
        """Sample and score a phase's prompts, and refill what taught nothing.

        Args:
            rows: This rank's prompts.
            source: Gives replacement prompts.
            phase: How many phases came before, over the whole run.
            meter: Takes the phase's metrics, of everything sampled before any group is left out.
            rank: This process's place.
            num_ranks: How many processes share the phase.

        Returns:
            The completions to train on.
        """
        self.reward_seconds = 0.0
        self._validity = torch.zeros(2, dtype=torch.long)
        num_wanted = int(sum_over_ranks(torch.tensor(len(rows))))
        positions = [rank + place * num_ranks for place in range(len(rows))]
        scored = self._sample(rows, positions, phase, 0)
        add_phase_metrics(meter, scored, self.scorer.rewards.names, self.group_size)
        kept = self._usable(scored)
        used = {row["prompt_id"] for row in rows}
        num_extra = 0
        for attempt in range(1, self.max_refill_rounds + 1):
            num_missing = num_wanted - self._num_groups(kept)
            if num_missing <= 0:
                break
            used = set().union(*gather_over_ranks(used))
            extra = source.extra_prompts(used, num_missing, phase, attempt)
            used |= {row["prompt_id"] for row in extra}
            places = [attempt * num_wanted + place for place in range(len(extra))]
            kept += self._usable(self._sample(extra[rank::num_ranks], places[rank::num_ranks], phase, attempt))
            num_extra += len(extra)
        if self.max_refill_rounds:
            meter.add_max("dynamic_sampling/extra_prompts", num_extra)
            meter.add_max("dynamic_sampling/missing_prompts", num_wanted - self._num_groups(kept))
        return kept

    def _sample(self, rows: Sequence[Row], positions: Sequence[int], phase: int, attempt: int) -> ScoredRollout:
        key = NoiseKey(global_seed(), "train", phase, attempt)
        scored = self.scorer(rows, positions, self.group_size, key)
        self.reward_seconds += scored.reward_seconds
        self._check_validity(scored)
        return scored

    def _check_validity(self, scored: ScoredRollout) -> None:
        """Refuse a phase, over all ranks and refills, most of which has no reward; all ranks refuse together."""
        self._validity = self._validity + torch.tensor([int((~scored.valid_mask).sum()), len(scored)])
        num_invalid, num_scored = sum_over_ranks(self._validity).tolist()
        reason = next((reason for reason in gather_over_ranks(scored.why_invalid) if reason), "")
        if 2 * num_invalid > num_scored:
            raise UserError(
                f"{num_invalid} of {num_scored} completions of a phase have no valid reward: {reason}; mend the "
                "function or the data's columns"
            )

    def _usable(self, scored: ScoredRollout) -> ScoredRollout:
        scored = scored.keep(scored.valid_mask)
        if not (self.needs_groups or self.drop_zero_std):
            return scored
        groups: dict[int, list[float]] = {}
        prompt_ids = scored.prompt_ids.tolist()
        for prompt_id, reward in zip(prompt_ids, scored.rewards.tolist(), strict=True):
            groups.setdefault(prompt_id, []).append(reward)
        usable = {
            prompt_id
            for prompt_id, rewards in groups.items()
            if len(rewards) > 1 and not (self.drop_zero_std and max(rewards) == min(rewards))
        }
        return scored.keep(torch.tensor([prompt_id in usable for prompt_id in prompt_ids], dtype=torch.bool))

    def _num_groups(self, scored: ScoredRollout) -> int:
        return int(sum_over_ranks(torch.tensor(len(set(scored.prompt_ids.tolist())))))
