"""The offline loader: every example once per epoch, the same windows on any number of ranks, resumable anywhere."""

import pytest

from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.window_loader import WindowLoader

LENGTHS = [3, 9, 4, 12, 5, 2, 30, 7, 7, 3, 11, 6, 2]


def example(row, length):
    return Example(row, [Sample([1] * length, [False] + [True] * (length - 1), 1)])


EXAMPLES = [example(row, length) for row, length in enumerate(LENGTHS)]


def make_loader(rank=0, world_size=1, num_micro_batches=2, max_tokens=None, shuffle=True):
    return WindowLoader(EXAMPLES, 5, num_micro_batches, max_tokens, 1, rank, world_size, shuffle)


def rows(batch):
    return [[e.row for e in part] for part in batch.parts]


def plan(loader):
    return [(rows(batch), batch.num_examples, batch.num_tokens, batch.closes_window) for batch in loader]


def window_sets(loaders):
    """Which rows each window holds, over all ranks."""
    windows = {}
    for loader in loaders:
        for number, batch in enumerate(loader):
            window = windows.setdefault(number // loader.num_micro_batches, [])
            window += [row for part in rows(batch) for row in part]
    return [sorted(window) for window in windows.values()]


@pytest.mark.parametrize("num_micro_batches", [1, 2, 4, 8])
def test_nothing_is_dropped_and_no_window_has_fewer_micro_batches(num_micro_batches):
    loader = make_loader(num_micro_batches=num_micro_batches)
    batches = list(loader)
    assert len(batches) == len(loader) == 3 * num_micro_batches
    assert [batch.closes_window for batch in batches] == ([False] * (num_micro_batches - 1) + [True]) * 3
    assert [len(window) for window in window_sets([loader])] == [5, 5, 3]
    assert sorted(row for window in window_sets([loader]) for row in window) == list(range(13))


@pytest.mark.parametrize("max_tokens", [None, 12])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_windows_of_one_and_stay_in_step(world_size, max_tokens):
    alone = make_loader()
    ranks = [make_loader(rank, world_size, max_tokens=max_tokens) for rank in range(world_size)]
    assert window_sets(ranks) == window_sets([alone])
    for batches in zip(*ranks, strict=True):
        assert len({len(batch.parts) for batch in batches}) == 1
        assert len({(batch.num_examples, batch.num_tokens, batch.closes_window) for batch in batches}) == 1


def test_counts_are_those_of_the_whole_window():
    loader = make_loader()
    for window, (first, second) in zip(window_sets([loader]), [(0, 1), (2, 3), (4, 5)], strict=True):
        batches = list(loader)
        assert batches[first].num_examples == batches[second].num_examples == len(window)
        assert batches[first].num_tokens == batches[second].num_tokens == sum(LENGTHS[row] - 1 for row in window)


def test_a_forward_holds_no_more_than_the_budget_unless_one_example_does():
    for batch in make_loader(num_micro_batches=1, max_tokens=14):
        for part in batch.parts:
            assert len(part) == 1 or len(part) * max(e.length for e in part) <= 14


def test_the_budget_counts_every_sample_of_an_example():
    pairs = [Example(row, EXAMPLES[row].samples * 2) for row in (0, 2, 9)]
    [batch] = WindowLoader(pairs, 3, max_tokens=16)
    assert sorted(len(part) for part in batch.parts) == [1, 2]
    assert all(2 * len(part) * max(e.length for e in part) <= 16 for part in batch.parts)


def test_order_changes_with_the_epoch_and_not_with_history():
    loader = make_loader()
    first = plan(loader)
    loader.set_epoch(1)
    second = plan(loader)
    loader.set_epoch(0)
    assert plan(loader) == first != second


def test_evaluation_keeps_the_order_of_the_data():
    assert window_sets([make_loader(shuffle=False)]) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]


def test_an_evaluation_cut_short_does_not_move_the_next():
    loader = make_loader(shuffle=False, num_micro_batches=1)
    first = rows(next(iter(loader)))
    assert rows(next(iter(loader))) == first


@pytest.mark.parametrize("stop", range(1, 7))
def test_resume_continues_after_the_last_batch_handed_out(stop):
    loader, whole = make_loader(), plan(make_loader())
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator)
    fresh = make_loader()
    fresh.load_state_dict(loader.state_dict())
    rest = plan(fresh)
    assert rest == (whole[stop:] if stop < len(whole) else whole)  # an epoch's end resumes at the next epoch's start
    assert plan(fresh) == whole
