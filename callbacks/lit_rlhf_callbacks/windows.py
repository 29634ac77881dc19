"""From sequence lengths to micro-batches: pure functions of integers, no torch.

A micro-batch is padded to its own longest row, so its cost is `rows x longest`. Sorting rows by length before cutting
keeps that cost near the number of real tokens.
"""

from collections.abc import Sequence
from heapq import heapify, heappush, heapreplace
from itertools import accumulate


def cut_window(lengths: Sequence[int], num_parts: int) -> list[list[int]]:
    """Cut rows into exactly `num_parts` micro-batches with the smallest possible largest padded size.

    Rows are sorted from longest to shortest (ties by row number) and cut into contiguous parts, so the first part
    holds the longest rows: what does not fit in memory fails at the start. The result depends on `lengths` alone.

    Args:
        lengths: tokens of each row.
        num_parts: number of parts, at least 1.

    Returns:
        `num_parts` lists of row numbers, covering every row once. Parts are empty only when there are fewer rows than
        parts, and then the last ones are.

    Raises:
        ValueError: if `num_parts` is below 1.

    Example:
        >>> cut_window([2, 9, 3, 8, 2, 2], num_parts=2)
        [[1, 3], [2, 0, 4, 5]]
        >>> cut_window([5], num_parts=2)
        [[0], []]
    """
    if num_parts < 1:
        raise ValueError(f"num_parts must be at least 1, got {num_parts}.")
    if not lengths:
        return [[] for _ in range(num_parts)]
    rows = _longest_first(lengths)
    low, high = lengths[rows[0]], lengths[rows[0]] * len(rows)
    while low < high:  # the smallest budget that num_parts parts can keep
        middle = (low + high) // 2
        if len(_greedy(lengths, rows, middle)) <= num_parts:
            high = middle
        else:
            low = middle + 1
    return halve_widest(lengths, _greedy(lengths, rows, low), num_parts)  # greedy may need fewer parts


def split_by_budget(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split rows into the fewest micro-batches of at most `max_tokens` padded tokens each.

    Args:
        lengths: tokens of each row.
        max_tokens: the budget: rows times the longest row of a part. A row longer than that gets a part of its own.

    Returns:
        Lists of row numbers, longest rows first, covering every row once; no list is empty.

    Raises:
        ValueError: if `max_tokens` is below 1.

    Example:
        >>> split_by_budget([2, 9, 3, 8, 2, 2], max_tokens=9)
        [[1], [3], [2, 0, 4], [5]]
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}.")
    return _greedy(lengths, _longest_first(lengths), max_tokens)


def halve_widest(lengths: Sequence[int], parts: Sequence[Sequence[int]], num_parts: int) -> list[list[int]]:
    """Halve parts, the widest first, until there are `num_parts`; the largest padded size cannot rise.

    Args:
        lengths: tokens of each row.
        parts: lists of row numbers, each from its longest row on.
        num_parts: at least as many as there are.

    Returns:
        `num_parts` lists in the order of the rows given, the last ones empty where every row has a part of its own.

    Example:
        >>> halve_widest([9, 8, 2, 2], [[0, 1], [2, 3]], num_parts=3)
        [[0], [1], [2, 3]]
    """
    starts = accumulate([0, *map(len, parts)])
    heap = [_by_width(lengths, list(part), start) for part, start in zip(parts, starts, strict=False)]
    heapify(heap)
    while len(heap) < num_parts and len(heap[0][-1]) > 1:
        _, _, start, part = heap[0]
        half = (len(part) + 1) // 2
        heapreplace(heap, _by_width(lengths, part[:half], start))
        heappush(heap, _by_width(lengths, part[half:], start + half))
    in_order = [part for _, _, _, part in sorted(heap, key=lambda entry: entry[2])]
    return in_order + [[] for _ in range(num_parts - len(in_order))]


def _by_width(lengths: Sequence[int], part: list[int], start: int) -> tuple[bool, int, int, list[int]]:
    return len(part) == 1, -lengths[part[0]] * len(part), start, part


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))


def _greedy(lengths: Sequence[int], rows: list[int], max_tokens: int) -> list[list[int]]:
    """Fill each part as far as the budget goes; a part always takes its first row."""
    parts: list[list[int]] = []
    for row in rows:
        if parts and (len(parts[-1]) + 1) * lengths[parts[-1][0]] <= max_tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts
