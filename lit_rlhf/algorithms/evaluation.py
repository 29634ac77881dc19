"""Held-out pass@1: how often one sampled answer is right, with its standard error."""

import math

from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.rewards import RewardSet, is_correct
from lit_rlhf.rewards.learned import LearnedReward
from lit_rlhf.rollout.scored import ScoredRollout
from lit_rlhf_callbacks.errors import UserError


class Evaluation:
    """Collect held-out samples of one evaluation.

    Args:
        rewards: The run's reward functions.
        eval_reward: The one whose score of at least 0.99 means a right answer; None takes the first that is no
            reward model, whose scores have no such point. Without one there is no pass@1.

    Raises:
        UserError: If there is no such reward function.
    """

    def __init__(self, rewards: RewardSet, eval_reward: str | None) -> None:
        if eval_reward not in (None, *rewards.names):
            names = ", ".join(rewards.names)
            raise UserError(f"model.eval_reward: no reward is called '{eval_reward}'; there are: {names}")
        fit = [
            column
            for column, reward in enumerate(rewards.rewards)
            if reward.name == eval_reward or (eval_reward is None and not isinstance(reward.function, LearnedReward))
        ]
        self.column = fit[0] if fit else None
        self.meter = WindowMeter()

    def add(self, scored: ScoredRollout) -> None:
        """Add one batch of samples; a sample without a score counts as wrong."""
        num_rows = len(scored)
        if self.column is not None:
            num_correct = sum(is_correct(score) for score in scored.scores[:, self.column].tolist())
            self.meter.add_mean("eval/pass_at_1", num_correct, num_rows)
        self.meter.add_mean("eval/reward", scored.rewards[scored.valid_mask].sum(), scored.valid_mask.sum())
        self.meter.add_mean("eval/completions/mean_length", scored.lengths.sum(), num_rows)
        self.meter.add_mean("eval/completions/clipped_ratio", scored.truncated_mask.sum(), num_rows)
        self.meter.add_total("eval/n", num_rows)

    def compute(self) -> dict[str, float]:
        """Return the evaluation's metrics, the same on every rank, and start anew."""
        metrics = self.meter.compute()
        if (rate := metrics.get("eval/pass_at_1")) is not None:
            metrics["eval/pass_at_1_se"] = math.sqrt(rate * (1 - rate) / metrics["eval/n"])
        return metrics
