"""Rewards for a right answer that is known beforehand."""

import re
from dataclasses import dataclass

from lit_rlhf.rewards.text import Completion, check_tags, completion_text, tagged_text


@dataclass(frozen=True, kw_only=True)
class ExactMatch:
    """1 when the completion is the column ``answer``, character for character after stripping, else 0.

    A row whose ``answer`` is None gets None: this function does not apply to it.

    >>> ExactMatch()(completions=["42 ", "43"], answer=["42", "42"])
    [1.0, 0.0]
    >>> ExactMatch(tag="answer")(completions=["<think>42?</think><answer>41</answer>"], answer=["42"])
    [0.0]
    """

    tag: str | None = None
    """Compare only what stands in the last ``<tag>...</tag>``; a completion without it is wrong."""

    def __post_init__(self) -> None:
        """Refuse a tag that no completion could have."""
        if self.tag is not None:
            check_tags([self.tag], "exact_match")

    def __call__(self, completions: list[Completion], answer: list[str | None]) -> list[float | None]:
        """Score each completion.

        Args:
            completions: What the model wrote.
            answer: The right answer of each row.

        Returns:
            1.0, 0.0 or None per row.
        """
        return [
            None if right is None else float(tagged_text(completion_text(completion), self.tag) == str(right).strip())
            for completion, right in zip(completions, answer, strict=True)
        ]


_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class LastNumber:
    """1 when the last number in the completion equals the column ``answer``, else 0.

    Lenient on purpose, for models that answer in a sentence; use ``math_verify`` for anything but plain numbers. A row
    whose ``answer`` is None gets None.

    >>> LastNumber()(completions=["3 + 4 is 7.", "1,234", "seven"], answer=["7", "1234.0", "7"])
    [1.0, 1.0, 0.0]
    """

    def __call__(self, completions: list[Completion], answer: list[str | None]) -> list[float | None]:
        """Score each completion.

        Args:
            completions: What the model wrote.
            answer: The right number of each row.

        Returns:
            1.0, 0.0 or None per row.
        """
        return [
            None if right is None else float(_last_number(completion_text(completion)) == _last_number(str(right)))
            for completion, right in zip(completions, answer, strict=True)
        ]


def _last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None
