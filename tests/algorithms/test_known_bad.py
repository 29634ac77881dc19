"""R16: combinations that train badly without an error are said in one line, and their good twins are not."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from lit_rlhf.algorithms import DPO, IPO, DPONorm
from lit_rlhf.algorithms.known_bad import (
    warn_of_sum_scale_beta,
    warn_of_swallowed_updates,
    warn_of_unleashed_reward,
)


def said(function, *args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*args, **kwargs)
    messages = [str(warning.message) for warning in caught]
    assert all("\n" not in message for message in messages)
    return messages


@pytest.mark.parametrize(
    ("precision", "lr", "warned"), [("bf16-true", 1e-6, True), ("bf16-true", 1e-3, False), ("bf16-mixed", 1e-6, False)]
)
def test_bf16_weights_with_a_small_rate(precision, lr, warned):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    trainer = SimpleNamespace(precision=precision, optimizers=[optimizer])
    assert bool(said(warn_of_swallowed_updates, trainer)) == warned


@pytest.mark.parametrize(
    ("module", "warned"),
    [
        (DPO(), False),
        (DPO(logps_over="mean"), True),
        (DPONorm(), False),
        (DPONorm(beta=0.1), True),
    ],
)
def test_a_beta_for_sums_on_means(module, warned):
    assert bool(said(warn_of_sum_scale_beta, module, usual=2.0)) == warned


def test_ipo_s_beta_is_no_scale_of_rewards():
    assert IPO().logps_over == "mean"
    assert IPO.mean_beta is None


@pytest.mark.parametrize(
    ("names", "beta", "warned"),
    [(["reward_model"], 0.0, True), (["reward_model"], 0.05, False), (["exact_match"], 0.0, False)],
)
def test_a_learned_reward_that_nothing_holds_back(names, beta, warned):
    module = SimpleNamespace(reward_set=SimpleNamespace(names=names))
    assert bool(said(warn_of_unleashed_reward, module, beta)) == warned
