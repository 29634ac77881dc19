"""Held-out pass@1: how often one sampled answer is right, with its standard error."""

import math

import torch

from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.rewards import RewardSet, is_correct
from lit_rlhf.rollout.scored import ScoredRollout
from lit_rlhf_callbacks.errors import UserError


class Evaluation:
    """Collect held-out samples of one evaluation.

    Args:
        rewards: The run's reward functions.
        eval_reward: The one whose score of at least 0.99 means a right answer; None takes the first.

    Raises:
        UserError: If there is no such reward function.
    """

    def __init__(self, rewards: RewardSet, eval_reward: str | None) -> None:
        name = eval_reward if eval_reward is not None else rewards.names[0]
        if name not in rewards.names:
            raise UserError(f"model.eval_reward: no reward is called '{name}'; there are: {', '.join(rewards.names)}")
        self.column = rewards.names.index(name)
        self.meter = WindowMeter()

    def add(self, scored: ScoredRollout) -> None:
        """Add one batch of samples; a sample without a score counts as wrong."""
        correct = torch.tensor([is_correct(score) for score in scored.scores[:, self.column].tolist()])
        num_rows = len(scored)
        self.meter.add_mean("eval/pass_at_1", correct.sum(), num_rows)
        self.meter.add_mean("eval/reward", scored.rewards[scored.valid_mask].sum(), scored.valid_mask.sum())
        self.meter.add_mean("eval/completions/mean_length", scored.lengths.sum(), num_rows)
        self.meter.add_mean("eval/completions/clipped_ratio", scored.truncated_mask.sum(), num_rows)
        self.meter.add_total("eval/n", num_rows)

    def compute(self) -> dict[str, float]:
        """Return the evaluation's metrics, the same on every rank, and start anew."""
        metrics = self.meter.compute()
        rate = metrics["eval/pass_at_1"]
        metrics["eval/pass_at_1_se"] = math.sqrt(rate * (1 - rate) / metrics["eval/n"])
        return metrics
