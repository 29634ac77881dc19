"""What offline training is made of: a sample is one sequence with a mask, an example is what a window counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Sample:
    """One tokenised sequence."""

    ids: Sequence[int]
    """Token ids, prompt then completion, T of them."""

    mask: Sequence[bool]
    """True: the token counts in the loss. Never on the first token, which nothing predicts. ``[T]``"""

    num_prompt: int
    """Tokens before the first completion; they condition, the rest is scored."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Example:
    """What one row of data became.

    >>> pair = Example(row=0, samples=[Sample([5, 6], [False, True], 1), Sample([5, 7, 8], [False, True, True], 1)])
    >>> pair.length, pair.num_tokens
    (3, 3)
    """

    row: int
    """The row's number in the data as read, from 0, before any filter."""

    samples: Sequence[Sample]
    """One (supervised, unpaired, stepwise), chosen then rejected (paired), or several, best first (ranked)."""

    label: float | None = None
    """The margin of a pair, or 1 for a good and 0 for a bad unpaired completion; None where there is none."""

    steps: Sequence[tuple[int, float]] = ()
    """Stepwise only: (position of a step's last token, its label)."""

    @property
    def length(self) -> int:
        """Tokens of the longest sample."""
        return max(len(sample) for sample in self.samples)

    @property
    def num_tokens(self) -> int:
        """Tokens that count in the loss, over all samples."""
        return sum(sum(sample.mask) for sample in self.samples)


class Sizes(NamedTuple):
    """What a plan of windows needs to know of N examples."""

    lengths: Sequence[int]
    """Tokens of each example's longest sample, ``[N]``."""

    num_tokens: Sequence[int]
    """Tokens of each that count in the loss, ``[N]``."""

    samples_per_example: int
    """Samples of the example that has the most: what one example costs at most, in rows of a forward."""


def sizes_of(examples: Sequence[Example]) -> Sizes:
    """Measure examples; a table that knows its own ``sizes`` is not read for it."""
    known: Sizes | None = getattr(examples, "sizes", None)
    if known is not None:
        return known
    return Sizes(
        lengths=[example.length for example in examples],
        num_tokens=[example.num_tokens for example in examples],
        samples_per_example=max((len(example.samples) for example in examples), default=1),
    )


def mismatched(example: Example, other: Example) -> Example:
    """Put another example's completion behind an example's prompt, as KTO's reference point needs it.

    >>> one = Example(row=0, samples=[Sample([1, 2, 3], [False, False, True], 2)])
    >>> two = Example(row=1, samples=[Sample([4, 5, 6], [False, True, True], 1)])
    >>> mismatched(one, two).samples[0].ids
    [1, 2, 5, 6]
    """
    prompt, completion = example.samples[0], other.samples[0]
    ids = [*prompt.ids[: prompt.num_prompt], *completion.ids[completion.num_prompt :]]
    mask = [False] * prompt.num_prompt + [bool(counts) for counts in completion.mask[completion.num_prompt :]]
    return Example(row=example.row, samples=[Sample(ids, mask, prompt.num_prompt)])
