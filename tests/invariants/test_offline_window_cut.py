"""T6 offline: an update is one number, however its window is cut and over how many ranks."""

import functools

import pytest
import torch
from offline_runs import REWARD_MODELS, train_offline, train_offline_one_of_two
from short_runs import deviation, untimed

PREFERENCES = ["DPO", "IPO", "SimPO", "CPO", "ORPO", "APOZero"]
CUTS = {
    "5": {"accumulate": 5},
    "more than examples": {"accumulate": 16},
    "budget": {"max_tokens_per_forward": 60},
    "3-and-budget": {"accumulate": 3, "max_tokens_per_forward": 1},
}


@pytest.fixture(scope="module")
def train(model):
    """`train_offline` on the tiny model; the same settings are trained once."""
    return functools.cache(functools.partial(train_offline, model=model))


@pytest.fixture(params=["SFT", *REWARD_MODELS, *PREFERENCES])
def offline(request):
    return request.param


def assert_same_run(one, other, tolerance=1e-5):
    assert deviation(one, other) < tolerance
    assert len(one.metrics) == len(other.metrics)
    for mine, its in zip(one.metrics, other.metrics, strict=True):
        assert untimed(its) == pytest.approx(untimed(mine), rel=1e-4, abs=1e-5)
    for mine, its in zip(one.held_out, other.held_out, strict=True):
        assert its == pytest.approx(mine, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("cut", CUTS)
def test_one_update(offline, train, cut):
    whole, other = train(offline), train(offline, **CUTS[cut])
    assert len(whole.tokens) == 1
    assert len(other.tokens) == CUTS[cut].get("accumulate", 1)
    assert_same_run(whole, other)


def test_an_epochs_last_window_is_smaller(offline, train):
    shared = {"examples_per_update": 5, "updates": 4}
    assert_same_run(train(offline, **shared), train(offline, **shared, accumulate=4), 1e-4)


def test_gradients_are_not_zero_and_reach_the_head(train):
    for name in REWARD_MODELS:
        [gradients] = train(name).gradients
        assert gradients["head.weight"].abs().max() > 0
        assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.ddp
@pytest.mark.parametrize("cut", [{}, {"accumulate": 8}, {"max_tokens_per_forward": 40}], ids=["1", "8", "budget"])
def test_two_ranks_make_the_updates_of_one(offline, train, ranks, model, cut):
    shared = {"updates": 2, "examples_per_update": 9}
    one = train(offline, **shared)
    for rank in ranks(train_offline_one_of_two, offline, model=model, **shared, **cut):
        assert_same_run(one, rank, 1e-4)
