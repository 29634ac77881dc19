"""The reward functions that have a short name."""

from collections.abc import Callable
from typing import Any

from lit_rlhf.rewards.answer import ExactMatch, LastNumber
from lit_rlhf.rewards.form import Format, Length, Overlong, Repetition
from lit_rlhf.rewards.learned import LearnedReward
from lit_rlhf.rewards.math_answer import MathVerify
from lit_rlhf.rewards.reasoning_gym_task import ReasoningGym

BUILTINS: dict[str, type[Callable[..., Any]]] = {
    "exact_match": ExactMatch,
    "last_number": LastNumber,
    "format": Format,
    "length": Length,
    "repetition": Repetition,
    "overlong": Overlong,
    "math_verify": MathVerify,
    "reasoning_gym": ReasoningGym,
    "reward_model": LearnedReward,
}
