"""Rows shared by sequences: full, the same on every rank, and laid out so that nothing is lost or scored twice."""

import random

import pytest
import torch

from lit_rlhf.data.packing import first_fit, pack_rows, plan_packed
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.window_loader import WindowLoader

DRAWS = [[random.Random(seed).randint(1, 60) for _ in range(1 + 7 * seed)] for seed in range(12)]


@pytest.mark.parametrize("lengths", DRAWS)
def test_every_sequence_stands_once_in_a_row_that_holds_it(lengths):
    rows = first_fit(lengths, 60)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    fills = [sum(lengths[number] for number in row) for row in rows]
    assert max(fills) <= 60
    assert all(first + second > 60 for first, second in zip(sorted(fills), sorted(fills)[1:], strict=False))


@pytest.mark.parametrize("lengths", DRAWS)
@pytest.mark.parametrize(("num_pieces", "max_tokens"), [(1, None), (3, None), (2, 130), (4, 1), (40, 200)])
def test_a_plan_holds_every_sequence_once_and_no_forward_more_than_its_budget(lengths, num_pieces, max_tokens):
    plan = plan_packed(lengths, num_pieces, max_tokens)
    assert len(plan) == num_pieces
    assert sorted(n for parts in plan for rows in parts for row in rows for n in row) == list(range(len(lengths)))
    row_counts = [sum(map(len, parts)) for parts in plan]
    assert max(row_counts) - min(row_counts) <= 1
    for part in (part for parts in plan for part in parts):
        assert max_tokens is None or len(part) <= max(max_tokens // max(lengths), 1)


@pytest.mark.parametrize("lengths", DRAWS)
def test_first_fit_of_some_rows_gives_these_rows(lengths):
    rows = first_fit(lengths, max(lengths))
    fills = [sum(lengths[number] for number in row) for row in rows]
    for start in range(0, len(rows), 3):
        part = [number for row in rows[start : start + 3] for number in row]
        again = first_fit([lengths[number] for number in part], max(lengths))
        assert [sum(lengths[part[place]] for place in row) for row in again] == fills[start : start + 3]


def test_sequences_are_laid_out_behind_each_other_and_brought_back():
    ids = torch.tensor([[5, 6, 0], [7, 8, 9], [4, 0, 0]])
    own = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    score = torch.tensor([[0, 1, 0], [0, 0, 1], [0, 0, 0]]).bool()
    packed = pack_rows(ids, own, score, [[1], [0, 2]], pad_id=0)
    assert packed.input_ids.tolist() == [[7, 8, 9], [5, 6, 4]]
    assert packed.position_ids.tolist() == [[0, 1, 2], [0, 1, 0]]
    assert packed.score_mask.int().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert packed.attention_mask.all()
    assert packed.unpack(packed.input_ids).tolist() == ids.tolist()
    assert packed.unpack(packed.score_mask).tolist() == score.tolist()


def test_a_pad_stands_by_itself():
    ids, own = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    packed = pack_rows(ids, own, torch.zeros_like(own), [[0], [1]], pad_id=3)
    assert packed.input_ids[1].tolist() == [8, 3, 3]
    assert packed.position_ids[1].tolist() == [0, 0, 0]


def test_a_first_token_is_never_scored():
    ids = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match="first token of a sequence"):
        pack_rows(ids, torch.ones_like(ids).bool(), torch.ones_like(ids).bool(), [[0]], pad_id=0)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(("num_micro_batches", "max_tokens"), [(1, None), (4, None), (2, 70)])
def test_packed_windows_hold_the_rows_and_counts_of_unpacked_ones(world_size, num_micro_batches, max_tokens):
    lengths = DRAWS[6]
    examples = [Example(n, [Sample([1] * k, [False] + [True] * (k - 1), 1)]) for n, k in enumerate(lengths)]

    def windows(packing):
        loaders = [
            WindowLoader(examples, 8, num_micro_batches, max_tokens, 3, rank, world_size, packing=packing)
            for rank in range(world_size)
        ]
        batches = [list(loader) for loader in loaders]
        for side_by_side in zip(*batches, strict=True):
            assert len({len(batch.parts) for batch in side_by_side}) == 1
        found = []
        for window in range(loaders[0].num_windows):
            mine = [b for rank in batches for b in rank[window * num_micro_batches : (window + 1) * num_micro_batches]]
            rows = sorted(example.row for batch in mine for part in batch.parts for example in part)
            found.append((rows, {(batch.num_examples, batch.num_tokens) for batch in mine}))
        return found

    assert windows(packing=True) == windows(packing=False)
