"""The window plan: every row once, counts of the whole window, the same windows however many ranks."""

import pytest

from lit_rlhf.algorithms.window import assign_windows, plan_slots


def plan(num_rows=12, **settings):
    defaults = {
        "group_size": 4,
        "num_epochs": 2,
        "num_windows": 2,
        "num_micro_batches": 3,
        "max_tokens": None,
        "key": (0, 0),
    }
    lengths = [5 + row % 7 for row in range(num_rows)]
    return plan_slots(range(num_rows), lengths, [length - 2 for length in lengths], **{**defaults, **settings}), lengths


@pytest.mark.parametrize("group_size", [1, 3, 4])
@pytest.mark.parametrize("num_windows", [1, 2, 5])
def test_windows_differ_by_one_row_at_most_and_spread_every_group(group_size, num_windows):
    windows = assign_windows(range(12), group_size, num_windows, "key")
    sizes = [sum(w == window for w in windows.values()) for window in range(num_windows)]
    assert max(sizes) - min(sizes) <= 1
    for start in range(0, 12, group_size):
        group = [windows[order] for order in range(start, start + group_size)]
        assert max(map(group.count, group)) <= -(-group_size // num_windows)


def test_windows_do_not_depend_on_which_rows_a_rank_holds():
    assert assign_windows([3, 1, 2, 0], 2, 2, 7) == assign_windows([0, 1, 2, 3], 2, 2, 7)


def test_every_row_is_trained_once_per_epoch():
    slots, _ = plan()
    assert len(slots) == 12
    for epoch in (slots[:6], slots[6:]):
        assert sorted(row for slot in epoch for part in slot.parts for row in part) == list(range(12))
    assert [slot.closes_window for slot in slots[:6]] == [False, False, True] * 2


def test_counts_are_those_of_the_whole_window():
    slots, lengths = plan()
    for start in range(0, 12, 3):
        rows = [row for slot in slots[start : start + 3] for part in slot.parts for row in part]
        assert {slot.num_tokens for slot in slots[start : start + 3]} == {sum(lengths[row] - 2 for row in rows)}
        assert {slot.num_sequences for slot in slots[start : start + 3]} == {len(rows)}


def test_the_token_budget_splits_forwards_and_not_slots():
    slots, lengths = plan(max_tokens=12)
    assert len(slots) == 12
    for slot in slots:
        for part in slot.parts:
            assert len(part) == 1 or len(part) * max(lengths[row] for row in part) <= 12


def test_fewer_rows_than_micro_batches_leave_empty_parts_and_counts_of_one():
    slots, _ = plan(num_rows=2, num_epochs=1)
    assert len(slots) == 6
    assert sum(slot.parts == [[]] for slot in slots) == 4
    assert all(slot.num_tokens >= 1 and slot.num_sequences >= 1 for slot in plan(num_rows=0)[0])
