"""What tokenising did to the rows: counted, so that it can be said."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


class Spread(NamedTuple):
    """The smallest, the middle and the largest of some numbers."""

    smallest: int
    middle: float
    largest: int

    @staticmethod
    def of(values: Sequence[int]) -> "Spread":
        """Measure; all zero where there are none."""
        return Spread(min(values), median(values), max(values)) if len(values) else NOTHING

    def __str__(self) -> str:
        return f"min {self.smallest}, median {self.middle:g}, max {self.largest}"


NOTHING = Spread(0, 0, 0)


@dataclass(kw_only=True)
class Tally:
    """Counts over the rows of one part of the data."""

    name: str
    """``train`` or ``eval``."""

    max_length: int
    """Tokens a sample may have."""

    num_rows: int = 0
    """Rows that were tokenised."""

    num_examples: int = 0
    """Examples that came of them."""

    num_samples: int = 0
    """Sequences in those examples."""

    num_refused: int = 0
    """Rows that the chat template refuses, dropped."""

    num_not_prefix: int = 0
    """Rows whose prompt the template renders differently with what follows, dropped."""

    num_all_masked: int = 0
    """Rows with a sample in which no token counts, dropped."""

    num_identical: int = 0
    """Rows whose completions have the same tokens once cut to length, dropped."""

    num_prompts_cut: int = 0
    """Rows whose prompt lost tokens from its left."""

    num_completions_cut: int = 0
    """Samples whose completion lost its end, and so has no stop token."""

    num_apart: int = 0
    """Samples whose prompt ends with a token that would merge with what follows, so that they were tokenised apart."""

    num_double_bos: int = 0
    """Texts in which a second BOS was removed."""

    num_bos_first: int = 0
    """Samples that begin with BOS."""

    num_unstopped: int = 0
    """Samples, their completion whole, that do not end with a stop token that counts."""

    num_inner_stops: int = 0
    """Samples with a stop token inside a turn: their text spells it out."""

    num_unmasked: int = 0
    """Samples in which every token counts."""

    supervised: Spread = NOTHING
    """Tokens that count, per sample."""

    lengths: Spread = NOTHING
    """Tokens, per sample."""

    @property
    def num_dropped(self) -> int:
        """Rows that became no example."""
        return self.num_refused + self.num_not_prefix + self.num_all_masked + self.num_identical

    def losses(self) -> list[str]:
        """Say what was dropped or cut, a line each; nothing where nothing was."""
        rows, samples = f"of {self.num_rows} rows", f"of {self.num_samples} samples"
        lines = [
            (self.num_refused, f"{rows} dropped: the chat template refuses them"),
            (self.num_not_prefix, f"{rows} dropped: the chat template changes the prompt once an answer follows"),
            (self.num_all_masked, f"{rows} dropped: no token counts in the loss"),
            (self.num_identical, f"{rows} dropped: completions identical within {self.max_length} tokens"),
            (self.num_prompts_cut, f"{rows}: prompt cut from the left to fit {self.max_length} tokens"),
            (self.num_completions_cut, f"{samples}: completion cut at its end, so it teaches no stop"),
            (self.num_apart, f"{samples}: prompt and completion tokenised apart, as one text they share a token"),
            (self.num_double_bos, "texts: a second BOS removed"),
        ]
        return [f"data ({self.name}): {count} {what}" for count, what in lines if count]
