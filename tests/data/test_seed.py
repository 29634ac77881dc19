"""Randomness that depends on a key and on nothing else."""

import lightning
import torch

from lit_rlhf.data.seed import global_seed, keyed_generator


def draw(*key):
    return torch.rand(4, generator=keyed_generator(*key)).tolist()


def test_a_key_gives_the_same_numbers_whatever_happened_before():
    first = draw("epoch", 1, 2)
    torch.manual_seed(9)
    torch.rand(5)
    assert draw("epoch", 1, 2) == first


def test_every_part_of_a_key_counts():
    keys = [("epoch", 1, 2), ("epoch", 2, 1), ("refill", 1, 2), ("epoch", 12), ("epoch", "1", 2), (("epoch", 1), 2)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_drawing_leaves_the_global_state_alone():
    state = torch.get_rng_state()
    draw("epoch", 1)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_run_has_the_seed_that_lightning_was_given(monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert global_seed() == 0
    with torch.random.fork_rng():
        lightning.seed_everything(123, verbose=False)
    assert global_seed() == 123
