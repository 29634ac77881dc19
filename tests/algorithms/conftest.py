"""Rollouts as they come back from sampling and scoring, made by hand."""

import pytest
import torch

from lit_rlhf.rollout.protocol import Completion
from lit_rlhf.rollout.scored import ScoredRollout


@pytest.fixture
def make_rollout():
    """A function: a rollout from ``(prompt id, reward or None, number of tokens, whether cut off)`` per completion."""

    def make(rows):
        completions = [
            Completion(prompt, n, [1, 3], [5] * length, [-1.0] * length, "length" if cut else "stop")
            for n, (prompt, _, length, cut) in enumerate(rows)
        ]
        rewards = torch.tensor([float("nan") if reward is None else reward for _, reward, _, _ in rows])
        return ScoredRollout(
            completions=completions,
            texts=["x" * length for _, _, length, _ in rows],
            order=list(range(len(rows))),
            scores=rewards[:, None],
            rewards=rewards,
            valid_mask=~rewards.isnan(),
            reward_seconds=0.25,
        )

    return make
