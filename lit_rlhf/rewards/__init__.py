"""Reward functions and what stands around them: settings, weights, time limits, errors that name a prompt.

The names are imported when they are first used, because `RewardSet` needs torch and a user's reward file does not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_rlhf.rewards.reward import RewardFunction, is_correct
    from lit_rlhf.rewards.reward_set import RewardSet, RewardTable

__all__ = ["RewardFunction", "RewardSet", "RewardTable", "is_correct"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lit_rlhf.rewards import reward, reward_set

    return getattr(reward_set if name in ("RewardSet", "RewardTable") else reward, name)
