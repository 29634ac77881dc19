import random

import pytest

from lit_rlhf_callbacks.buckets import bucket_lengths, heaviest, padded_tokens, padding_waste, plan_batches


def some_lengths(num: int, seed: int) -> list[int]:
    dice = random.Random(seed)
    return [min(int(dice.lognormvariate(4, 1)) + 1, 1000) for _ in range(num)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [None, 300, 2000])
@pytest.mark.parametrize("num_rows", [3, 50, 211])
def test_a_plan_holds_every_row_under_the_budget_in_as_many_batches_each_epoch(num_rows, max_tokens, num_ranks):
    lengths = some_lengths(num_rows, seed=num_rows)
    counts = set()
    for epoch in range(5):
        batches = plan_batches(lengths, max_tokens, -(-num_rows // 8), num_ranks, seed=1, epoch=epoch)
        rows = [row for batch in batches for row in batch]
        assert set(rows) == set(range(num_rows))
        assert len(rows) - num_rows < num_ranks
        assert all(batches)
        if max_tokens is not None:
            assert all(padded_tokens(lengths, batch) <= max_tokens or len(batch) == 1 for batch in batches)
        counts.add(len(batches))
    assert len(counts) == 1
    assert counts.pop() % num_ranks == 0


def test_without_a_budget_an_epoch_has_as_many_batches_as_before():
    lengths = some_lengths(211, seed=0)
    assert len(plan_batches(lengths, None, 27, 1, seed=0, epoch=0)) == 27


def test_ranks_compute_neighbours_in_length_at_the_same_time():
    lengths = some_lengths(400, seed=2)
    batches = plan_batches(lengths, 2000, 0, 2, seed=0, epoch=0)
    pairs = [(padded_tokens(lengths, a), padded_tokens(lengths, b)) for a, b in zip(*[iter(batches)] * 2, strict=True)]
    assert sum(max(pair) for pair in pairs) < 0.56 * sum(map(sum, pairs))  # 0.5: no rank ever waits


def test_epochs_and_seeds_differ_and_repeat():
    lengths = some_lengths(200, seed=3)
    plan = [plan_batches(lengths, 1000, 0, 1, seed, epoch) for seed, epoch in [(0, 0), (0, 0), (0, 1), (1, 0)]]
    assert plan[0] == plan[1]
    assert plan[0] != plan[2]
    assert plan[0] != plan[3]
    mates = [{frozenset(batch) for batch in batches} for batches in plan]
    assert len(mates[0] & mates[2]) < len(mates[0]) / 2  # rows meet others in each epoch


def test_a_bucket_costs_at_most_a_tenth():
    lengths = some_lengths(300, seed=4)
    assert all(
        length <= padded <= 1.1 * length for length, padded in zip(lengths, bucket_lengths(lengths), strict=True)
    )


def test_waste_and_weight_by_hand():
    lengths = [1, 4, 3, 9]
    assert padding_waste(lengths, [[0, 1], [2]]) == pytest.approx(3 / 11)
    assert heaviest(lengths, [[0, 1], [2], [3], [1, 2]]) == [3]  # 9 tokens against 8, 3 and 8
    assert heaviest([10, 10, 19], [[0, 1], [2]]) == [2]  # 19 tokens at a time are dearer than 10 and 10
