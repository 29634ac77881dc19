"""Reward functions and what stands around them: settings, weights, time limits, errors that name a prompt."""

from lit_rlhf.rewards.reward import RewardFunction, is_correct
from lit_rlhf.rewards.reward_set import RewardSet, RewardTable

__all__ = ["RewardFunction", "RewardSet", "RewardTable", "is_correct"]
