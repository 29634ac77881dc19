"""Which rows go into which batch, from their lengths alone: pure functions of integers."""

import random
from collections.abc import Sequence

from lit_rlhf_callbacks.windows import cut_window, halve_widest, split_by_budget

_BUCKET_WIDTH = 1.1  # longest over shortest row of a bucket; bounds the padding that mixing rows costs


def bucket_lengths(lengths: Sequence[int]) -> list[int]:
    """Replace every length by the longest one of its bucket, so that rows of a bucket can change places.

    Args:
        lengths: tokens of each row.

    Returns:
        As many lengths, each at least as long as the original and at most 1.1 times that.

    Example:
        >>> bucket_lengths([100, 95, 90, 12, 11])
        [100, 100, 90, 12, 12]
    """
    bucket: dict[int, int] = {}
    longest = 0
    for length in sorted(set(lengths), reverse=True):
        if length * _BUCKET_WIDTH < longest or not longest:
            longest = length
        bucket[length] = longest
    return [bucket[length] for length in lengths]


def plan_batches(
    lengths: Sequence[int], max_tokens: int | None, num_batches: int, num_ranks: int, seed: int, epoch: int
) -> list[list[int]]:
    """Cut all rows into batches of like length, in a random order of batches and of rows within a bucket.

    How many batches there are depends on the lengths, and not on the epoch: Lightning asks once. Batches that the ranks
    compute at the same time are neighbours in length.

    Args:
        lengths: tokens of each row, at least one row.
        max_tokens: padded tokens a batch may hold; a row longer than that is a batch of its own. None cuts into
            ``num_batches``, of as equal padded size as can be.
        num_batches: used without ``max_tokens``.
        num_ranks: the number of batches is a multiple of it. If that makes more batches than rows, the shortest row is
            repeated.
        seed: orders rows and batches, together with the epoch.
        epoch: the epoch.

    Returns:
        Lists of row numbers; rank r takes every ``num_ranks``-th, from the r-th on.
    """
    rows = shuffled(len(lengths), f"rows/{seed}/{epoch}")
    padded = bucket_lengths(lengths)
    sizes = [padded[row] for row in rows]
    cut = split_by_budget(sizes, max_tokens) if max_tokens else cut_window(sizes, min(num_batches, len(rows)))
    cut = halve_widest(sizes, cut, -(-len(cut) // num_ranks) * num_ranks)
    cut = [batch or [sizes.index(min(sizes))] for batch in cut]
    order = shuffled(len(cut) // num_ranks, f"batches/{seed}/{epoch}")
    side_by_side = [cut[n * num_ranks : (n + 1) * num_ranks] for n in order]
    return [[rows[place] for place in batch] for batches in side_by_side for batch in batches]


def shuffled(num: int, key: str) -> list[int]:
    """Return the numbers below ``num`` in an order that is a function of the key."""
    order = list(range(num))
    random.Random(key).shuffle(order)
    return order


def padded_tokens(lengths: Sequence[int], batch: Sequence[int]) -> int:
    """Return what a batch holds: its rows times its longest row."""
    return len(batch) * max(lengths[row] for row in batch)


def padding_waste(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Return the share of padding among the tokens of all batches.

    Args:
        lengths: tokens of each row.
        batches: lists of row numbers.

    Example:
        >>> padding_waste([1, 4, 3], [[0, 1], [2]])
        0.2727272727272727
    """
    held = sum(padded_tokens(lengths, batch) for batch in batches)
    return 1 - sum(lengths[row] for batch in batches for row in batch) / held


def heaviest(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> list[int]:
    """Return the batch that needs most memory: of those with about the most padded tokens, that of the longest row."""
    most = max(padded_tokens(lengths, batch) for batch in batches)
    full = [batch for batch in batches if padded_tokens(lengths, batch) >= 0.9 * most]
    longest = [max(lengths[row] for row in batch) for batch in full]
    return list(full[longest.index(max(longest))])
