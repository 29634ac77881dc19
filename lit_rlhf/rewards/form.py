"""Rewards for how a completion is written: its tags, its length, its repetitions."""

from dataclasses import dataclass, field
from typing import Literal

from lit_rlhf.rewards.text import Completion, check_tags, completion_text
from lit_rlhf_callbacks.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Format:
    """1 when the completion is exactly one section per tag, in this order, none of them blank; else 0.

    Counting that each tag occurs somewhere can be earned by writing the tags inside the reasoning, in any order or a
    hundred times. Here every opening and closing tag must occur exactly once, in order, with nothing but white space
    between and around the sections.

    >>> Format()(completions=["<think>1+1</think> <answer>2</answer>"])
    [1.0]
    >>> Format()(completions=["<answer>2</answer><think>1+1</think>", "<think>a</think><answer>2</answer> bye"])
    [0.0, 0.0]
    """

    tags: list[str] = field(default_factory=lambda: ["think", "answer"])
    """Tag names without brackets, in order."""

    def __post_init__(self) -> None:
        """Refuse tags that no completion could have."""
        check_tags(self.tags, "format")

    def __call__(self, completions: list[Completion]) -> list[float]:
        """Score each completion.

        Args:
            completions: What the model wrote.

        Returns:
            1.0 or 0.0 per row.
        """
        return [float(self._is_well_formed(completion_text(completion))) for completion in completions]

    def _is_well_formed(self, text: str) -> bool:
        rest = text
        for tag in self.tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            if text.count(opening) != 1 or text.count(closing) != 1:
                return False
            before, _, after = rest.partition(opening)
            content, found, rest = after.partition(closing)
            if before.strip() or not found or not content.strip():
                return False
        return not rest.strip()


@dataclass(frozen=True, kw_only=True)
class Length:
    """1 within ``band`` of the target length, falling linearly to 0 one target away from the band.

    >>> Length(target=10, band=2)(completions=["", ""], completion_ids=[[5] * 12, [5] * 17])
    [1.0, 0.5]
    """

    target: int
    """The wanted length."""
    band: int = 0
    """How far from the target still earns the full reward."""
    unit: Literal["tokens", "characters"] = "tokens"
    """What is counted."""

    def __post_init__(self) -> None:
        """Refuse a length that cannot be reached or an unknown unit."""
        if self.target < 1 or self.band < 0:
            raise UserError(
                f"reward function 'length': target must be ≥ 1 and band ≥ 0, not {self.target} and {self.band}"
            )
        if self.unit not in ("tokens", "characters"):
            raise UserError(f"reward function 'length': unit must be tokens or characters, not {self.unit!r}")

    def __call__(self, completions: list[Completion], completion_ids: list[list[int]]) -> list[float]:
        """Score each completion.

        Args:
            completions: What the model wrote.
            completion_ids: The same as token ids; an EOS token counts as one.

        Returns:
            A number from 0 to 1 per row.
        """
        in_tokens = self.unit == "tokens"
        lengths = [len(ids) for ids in completion_ids] if in_tokens else [len(completion_text(c)) for c in completions]
        return [max(0.0, 1.0 - max(0, abs(length - self.target) - self.band) / self.target) for length in lengths]


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Minus the share of token n-grams that have occurred before in the same completion, times ``max_penalty``.

    Source: the n-gram repetition penalty of "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373,
    appendix C), over tokens instead of words so that it also holds for text without spaces.

    >>> Repetition(ngram=2)(completion_ids=[[1, 2, 2, 2], [1, 1, 1, 1, 1]])
    [-0.333..., -0.75]
    """

    ngram: int = 4
    """Tokens per n-gram."""
    max_penalty: float = 1.0
    """The penalty of a completion that only repeats itself; ≥ 0."""

    def __post_init__(self) -> None:
        """Refuse settings that would reward repetition."""
        if self.ngram < 1 or self.max_penalty < 0:
            raise UserError(
                f"reward function 'repetition': ngram must be ≥ 1 and max_penalty ≥ 0, "
                f"not {self.ngram} and {self.max_penalty}"
            )

    def __call__(self, completion_ids: list[list[int]]) -> list[float]:
        """Score each completion.

        Args:
            completion_ids: Token ids of each completion.

        Returns:
            A number from ``-max_penalty`` to 0 per row.
        """
        return [0.0 - self.max_penalty * self._share_repeated(ids) for ids in completion_ids]  # 0.0, never -0.0

    def _share_repeated(self, ids: list[int]) -> float:
        ngrams = [tuple(ids[start : start + self.ngram]) for start in range(len(ids) - self.ngram + 1)]
        return (len(ngrams) - len(set(ngrams))) / len(ngrams) if ngrams else 0.0


@dataclass(frozen=True, kw_only=True)
class Overlong:
    """DAPO's soft overlong punishment: 0 up to ``max_tokens - cache``, falling to -1 at ``max_tokens`` and beyond.

    Source: DAPO (arXiv 2503.14476), equation 13. Needs no text, so it also punishes what was cut off.

    >>> Overlong(max_tokens=100, cache=20)(completion_ids=[[5] * 80, [5] * 90, [5] * 100])
    [0.0, -0.5, -1.0]
    """

    max_tokens: int
    """L_max: from here on the punishment is -1."""
    cache: int
    """L_cache: over how many tokens below ``max_tokens`` the punishment sets in; 0 makes it a step."""

    def __post_init__(self) -> None:
        """Refuse an interval that is none."""
        if self.max_tokens < 1 or not 0 <= self.cache <= self.max_tokens:
            raise UserError(
                f"reward function 'overlong': max_tokens must be ≥ 1 and cache between 0 and max_tokens, "
                f"not {self.max_tokens} and {self.cache}"
            )

    def __call__(self, completion_ids: list[list[int]]) -> list[float]:
        """Score each completion.

        Args:
            completion_ids: Token ids of each completion.

        Returns:
            A number from -1 to 0 per row.
        """
        return [self._punish(len(ids)) for ids in completion_ids]

    def _punish(self, length: int) -> float:
        if length >= self.max_tokens:
            return -1.0 if length > self.max_tokens or self.cache else 0.0
        return min(0.0, (self.max_tokens - self.cache - length) / self.cache) if self.cache else 0.0
