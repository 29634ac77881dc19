"""Packing makes the same updates: loss, gradients, metrics and what callbacks see are those of unpacked rows."""

import functools

import pytest
import torch
from offline_runs import train_offline, train_offline_one_of_two
from short_runs import deviation, untimed, write_model

CUTS = {
    "whole": {},
    "4": {"accumulate": 4},
    "more than rows": {"accumulate": 16},
    "budget": {"max_tokens_per_forward": 40},
    "3-and-budget": {"accumulate": 3, "max_tokens_per_forward": 1},
    "dft": {"loss": "dft"},
    "checkpointed": {"gradient_checkpointing": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: write_model(tmp_path_factory.mktemp(name), name) for name in ("llama", "gpt2")}


@pytest.fixture(scope="module")
def train(folders):
    return functools.cache(lambda architecture, **how: train_offline("SFT", model=folders[architecture], **how))


def by_content(run):
    """What callbacks see of each row, by its tokens."""
    rows = {}
    for tokens in run.tokens:
        for row in range(len(tokens["input_ids"])):
            own = tokens["attention_mask"][row]
            rows[tuple(tokens["input_ids"][row][own].tolist())] = {k: v[row][own].float() for k, v in tokens.items()}
    return rows


def assert_same_run(one, other, tolerance=1e-5):
    assert deviation(one, other) < tolerance
    for mine, its in zip(one.metrics + one.held_out, other.metrics + other.held_out, strict=True):
        assert untimed(its) == pytest.approx(untimed(mine), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("cut", CUTS)
def test_one_update(train, architecture, cut):
    unpacked, packed = (train(architecture, **CUTS[cut], packing=packing) for packing in (False, True))
    assert len(packed.tokens) == len(unpacked.tokens)
    assert_same_run(unpacked, packed)


def test_callbacks_see_a_row_per_example(train):
    unpacked, packed = (by_content(train("llama", packing=packing)) for packing in (False, True))
    assert len(unpacked) == 13
    assert packed.keys() == unpacked.keys()
    for content, mine in unpacked.items():
        for name, values in mine.items():
            torch.testing.assert_close(packed[content][name], values, atol=1e-5, rtol=0)


def test_an_epochs_last_window_is_smaller(train):
    shared = {"examples_per_update": 5, "updates": 4}
    assert_same_run(train("llama", **shared), train("llama", **shared, accumulate=2, packing=True), 1e-4)


@pytest.mark.ddp
@pytest.mark.parametrize("cut", [{}, {"accumulate": 8}, {"max_tokens_per_forward": 40}], ids=["1", "8", "budget"])
def test_two_ranks_make_the_updates_of_one(train, ranks, folders, cut):
    shared = {"updates": 2, "examples_per_update": 9}
    one = train("llama", **shared)
    for rank in ranks(train_offline_one_of_two, "SFT", model=folders["llama"], **shared, **cut, packing=True):
        assert_same_run(one, rank, 1e-4)
