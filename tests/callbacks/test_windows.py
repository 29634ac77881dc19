from itertools import combinations, pairwise

import pytest

from lit_rlhf_callbacks.windows import cut_window, split_by_budget


def padded(lengths: list[int], part: list[int]) -> int:
    return len(part) * max((lengths[row] for row in part), default=0)


def best_by_force(lengths: list[int], num_parts: int) -> int:
    """The smallest largest part over every contiguous cut of the sorted rows."""
    ordered = sorted(lengths, reverse=True)
    best = None
    for cuts in combinations(range(1, len(ordered)), num_parts - 1):
        edges = [0, *cuts, len(ordered)]
        worst = max((end - start) * ordered[start] for start, end in pairwise(edges))
        best = worst if best is None else min(best, worst)
    assert best is not None
    return best


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "lengths",
    [[7, 1, 1, 1, 1, 1, 1], [5, 5, 5, 5, 5, 5, 5, 5], [100, 90, 3, 2, 60, 7, 33, 12], [1, 2, 3, 4, 5, 6, 7, 8, 9]],
)
def test_cut_window_is_the_best_contiguous_cut(lengths: list[int], num_parts: int) -> None:
    parts = cut_window(lengths, num_parts)

    assert len(parts) == num_parts
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    assert all(parts)
    assert max(padded(lengths, part) for part in parts) == best_by_force(lengths, num_parts)
    flat = [lengths[row] for part in parts for row in part]
    assert flat == sorted(flat, reverse=True)


def test_cut_window_with_fewer_rows_than_parts_leaves_the_last_parts_empty() -> None:
    assert cut_window([3, 5], 4) == [[1], [0], [], []]
    assert cut_window([], 3) == [[], [], []]


def test_split_by_budget_keeps_the_budget_and_isolates_longer_rows() -> None:
    lengths = [40, 3, 3, 3, 10, 9, 2, 1]
    parts = split_by_budget(lengths, 20)

    assert parts == [[0], [4, 5], [1, 2, 3, 6, 7]]
    assert split_by_budget([], 20) == []


@pytest.mark.parametrize("call", [lambda: cut_window([1], 0), lambda: split_by_budget([1], 0)])
def test_a_size_below_one_is_an_error(call) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        call()
