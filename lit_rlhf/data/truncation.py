"""Rows longer than ``max_length``: the prompt gives way from its left, the completion is kept."""

from collections.abc import Sequence
from typing import NamedTuple

from lit_rlhf.data.samples import Sample


class Truncated(NamedTuple):
    """The samples of one example, none longer than allowed."""

    samples: list[Sample]
    prompt_cut: bool
    """Whether a prompt lost tokens."""
    num_completions_cut: int
    """Completions that lost their end, and with it the token that stops them."""


def truncate(samples: Sequence[Sample], starts: Sequence[int], max_length: int, bos_id: int | None) -> Truncated:
    """Cut the samples of one example to a length; samples of a pair keep the same prompt.

    The prompt is cut from the left (a BOS stays) to make room for the longest completion. A completion too long by
    itself is cut at its end and gets no EOS; a quarter of the length is then left for the prompt.

    Args:
        samples: Of one example.
        starts: Where each one's completion begins; of several turns, the last.
        max_length: Tokens a sample may have.
        bos_id: The token that stays first, if a sample begins with it.

    Returns:
        The samples with what happened to them.

    >>> whole = Sample([1, 2, 3, 4, 5, 6], [False, False, False, True, True, True], 3)
    >>> truncate([whole], [3], 5, bos_id=1).samples[0].ids
    [1, 3, 4, 5, 6]
    """
    if all(len(sample) <= max_length for sample in samples):
        return Truncated(list(samples), False, 0)
    least = 1 + (bos_id is not None and samples[0].ids[0] == bos_id)  # nothing predicts a row's first token
    tails = [len(sample) - start for sample, start in zip(samples, starts, strict=True)]
    kept = [tail if tail <= max_length - least else max_length - max_length // 4 for tail in tails]
    room = max(max_length - max(kept), least)
    cut = [_cut(sample, start, room, max_length, bos_id) for sample, start in zip(samples, starts, strict=True)]
    num_completions_cut = sum(tail > max_length - min(start, room) for tail, start in zip(tails, starts, strict=True))
    return Truncated(cut, any(start > room for start in starts), num_completions_cut)


def _cut(sample: Sample, start: int, room: int, max_length: int, bos_id: int | None) -> Sample:
    num_cut = max(start - room, 0)
    ids, mask = list(sample.ids[num_cut:]), list(sample.mask[num_cut:])
    if num_cut:
        keeps_bos = sample.ids[0] == bos_id
        if keeps_bos:
            ids[0], mask[0] = sample.ids[0], False
        place = int(keeps_bos)
        while place < len(mask) and mask[place]:  # the rest of a turn whose beginning is gone is not learned
            mask[place] = False
            place += 1
    ids, mask = ids[:max_length], mask[:max_length]
    first = next((place for place, counts in enumerate(mask) if counts), len(mask))
    num_prompt = sample.num_prompt - num_cut if sample.num_prompt > num_cut or not num_cut else first
    return Sample(ids, mask, num_prompt)
