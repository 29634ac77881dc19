"""The prompt loader: every prompt once per epoch, the same phases on any number of ranks, resumable anywhere."""

import pytest

from lit_rlhf.data.loader import EvalLoader, PhaseLoader

ROWS = [{"prompt_id": number} for number in range(10)]


def ids(batches):
    return [[row["prompt_id"] for row in batch] for batch in batches]


def make_loader(rank=0, world_size=1, num_slots=3):
    return PhaseLoader(ROWS, prompts_per_phase=4, num_slots=num_slots, seed=1, rank=rank, world_size=world_size)


def test_each_phase_is_repeated_once_per_slot_and_no_prompt_is_dropped():
    batches = ids(make_loader())
    assert len(batches) == len(make_loader()) == 9
    phases = batches[::3]
    assert [batches[3 * p : 3 * p + 3] for p in range(3)] == [[phase] * 3 for phase in phases]
    assert sorted([number for phase in phases for number in phase]) == list(range(10))
    assert [len(phase) for phase in phases] == [4, 4, 2]


def test_order_changes_with_the_epoch_and_not_with_history():
    loader = make_loader(num_slots=1)
    first = ids(loader)
    loader.set_epoch(1)
    second = ids(loader)
    loader.set_epoch(0)
    assert ids(loader) == first != second


def test_two_ranks_share_the_phases_of_one():
    whole, parts = ids(make_loader()), [ids(make_loader(rank, 2)) for rank in (0, 1)]
    for batch, left, right in zip(whole, *parts, strict=True):
        assert left == batch[0::2]
        assert right == batch[1::2]


@pytest.mark.parametrize("stop", range(1, 10))
def test_resume_continues_after_the_last_batch_handed_out(stop):
    loader, whole = make_loader(), ids(make_loader())
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator)
    fresh = make_loader()
    fresh.load_state_dict(loader.state_dict())
    rest = ids(fresh)
    assert rest == (whole[stop:] if stop < len(whole) else whole)  # an epoch's end resumes at the next epoch's start
    assert ids(fresh) == whole


def test_eval_loader_gives_every_rank_the_same_number_of_batches():
    batches = [ids(EvalLoader(ROWS, 2, rank, 2)) for rank in (0, 1)]
    assert [len(b) for b in batches] == [3, 3]
    assert sorted(number for rank in batches for batch in rank for number in batch) == list(range(10))
