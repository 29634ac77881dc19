"""What a reward function is, once it has a name, a weight and its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

RewardFunction = Callable[..., list[float | None]]
"""TRL's signature: ``f(prompts, completions, completion_ids, **columns)``, one score per completion.

``None`` means that the function does not apply to this row. Everything is passed by keyword and only what the function
takes is passed, so ``def f(completions, answer)`` is enough.
"""

OFFERED = ("prompts", "completions", "completion_ids", "prompt_id")
"""Arguments that every function may take beside the columns of the data."""

CORRECT_SCORE = 0.99


def is_correct(score: float) -> bool:
    """Whether a score counts as a right answer for pass@1.

    Several verifiers give partial credit (reasoning-gym gives 0.8 for an answer with something after it), so "above
    zero" is not "right".

    Args:
        score: One function's score of one completion.

    Returns:
        True from 0.99 on.

    >>> is_correct(1.0), is_correct(0.8)
    (True, False)
    """
    return score >= CORRECT_SCORE


@dataclass(frozen=True)
class Reward:
    """One reward function, ready to be called.

    Attributes:
        name: The metric key's middle part: ``rewards/{name}/mean``.
        function: The function with its settings bound.
        weight: Its factor in the total; 0 logs the component without training on it.
        required: Arguments without a default, in the function's order.
        optional: Arguments with a default, which a column of that name replaces.
        bound: Names of its settings, which no column replaces.
        takes_all: The function has ``**kwargs``, so it gets every column.
        file: Where the function is written, to point at its lines; "" when unknown.
    """

    name: str
    function: RewardFunction
    weight: float
    required: tuple[str, ...]
    optional: frozenset[str]
    bound: frozenset[str]
    takes_all: bool
    file: str

    def arguments(self, offered: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Pick what the function takes; each list is a copy, so no function can change what the next one sees.

        Args:
            offered: Name to one value per row.

        Returns:
            The keyword arguments of one call.
        """
        return {
            name: list(values)
            for name, values in offered.items()
            if name in self.optional or name in self.required or (self.takes_all and name not in self.bound)
        }

    def missing(self, available: set[str]) -> list[str]:
        """Name the arguments that neither the columns nor the training loop can fill.

        Args:
            available: Names of the data's columns.

        Returns:
            The missing names, in the function's order.
        """
        return [name for name in self.required if name not in available and name not in OFFERED]
