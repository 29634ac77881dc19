import math

import pytest
import torch

from lit_rlhf.functional import (
    aggregate,
    cispo_loss,
    gspo_loss,
    ppo_clip_loss,
    reinforce_loss,
    sapo_loss,
    tis_weights,
)

MASK = torch.tensor([[True, True, True], [True, False, False]])
CLIP = {"clip_low": 0.2, "clip_high": 0.3}
LOSSES = {
    "reinforce": lambda logps, old, advantages, mask: reinforce_loss(logps, advantages),
    "ppo": lambda logps, old, advantages, mask: ppo_clip_loss(logps, old, advantages, **CLIP),
    "ppo_dual": lambda logps, old, advantages, mask: ppo_clip_loss(logps, old, advantages, **CLIP, clip_dual=3.0),
    "gspo": lambda logps, old, advantages, mask: gspo_loss(logps, old, advantages, mask, **CLIP),
    "cispo": lambda logps, old, advantages, mask: cispo_loss(logps, old, advantages, **CLIP),
    "sapo": lambda logps, old, advantages, mask: sapo_loss(logps, old, advantages),
}


@pytest.fixture(params=LOSSES)
def any_loss(request):
    return LOSSES[request.param]


def value_and_gradient(loss, ratio, advantage, **settings):
    """Of one token whose old log-prob is -1."""
    logps = torch.tensor([[-1 + math.log(ratio)]], requires_grad=True)
    result = loss(logps, torch.tensor([[-1.0]]), torch.tensor([[advantage]]), **settings)
    result.values.sum().backward()
    return result.values.item(), logps.grad.item(), result.low_clipped.item(), result.high_clipped.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient", "low", "high"),
    [
        (1.0, 2.0, -2.0, -2.0, False, False),
        (1.25, 2.0, -2.5, -2.5, False, False),
        (1.5, 2.0, -2.6, 0.0, False, True),  # likelier and good: stop at 1.3
        (0.5, 2.0, -1.0, -1.0, False, False),  # unlikelier though good: the pull back is never clipped
        (0.5, -2.0, 1.6, 0.0, True, False),  # unlikelier and bad: stop at 0.8
        (1.5, -2.0, 3.0, 3.0, False, False),
        (1.5, 0.0, 0.0, 0.0, False, False),
    ],
)
def test_ppo_clip_by_hand(ratio, advantage, value, gradient, low, high):
    result = value_and_gradient(ppo_clip_loss, ratio, advantage, **CLIP)
    assert result == (pytest.approx(value), pytest.approx(gradient), low, high)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        (2.0, -2.0, 4.0, 4.0),
        (10.0, -2.0, 6.0, 0.0),  # the cap 3 |A|
        (10.0, 2.0, -2.6, 0.0),  # a positive advantage is clipped as ever
        (0.5, -2.0, 1.6, 0.0),
    ],
)
def test_dual_clip_by_hand(ratio, advantage, value, gradient):
    result = value_and_gradient(ppo_clip_loss, ratio, advantage, **CLIP, clip_dual=3.0)
    assert result[:2] == (pytest.approx(value), pytest.approx(gradient))


def test_dual_clip_below_one_is_refused():
    with pytest.raises(ValueError, match="clip_dual must be above 1"):
        ppo_clip_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), **CLIP, clip_dual=1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "low", "high"),
    [
        (1.1, 2.0, 1.1, False, False),
        (1.5, 2.0, 1.3, False, True),
        (1.5, -2.0, 1.3, False, False),
        (0.5, -2.0, 0.8, True, False),
        (0.5, 2.0, 0.8, False, False),
    ],
)
def test_cispo_by_hand(ratio, advantage, weight, low, high):
    """The gradient is the bounded weight times A, never 0."""
    value = -weight * advantage * (-1 + math.log(ratio))
    result = value_and_gradient(cispo_loss, ratio, advantage, **CLIP)
    assert result == (pytest.approx(value), pytest.approx(-weight * advantage), low, high)


def test_cispo_without_a_lower_bound():
    _, gradient, low, _ = value_and_gradient(cispo_loss, 0.01, -2.0, clip_low=None, clip_high=0.3)
    assert gradient == pytest.approx(0.02)
    assert not low


@pytest.mark.parametrize(("advantage", "tau"), [(2.0, 0.7), (-2.0, 1.9)])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_sapo_by_hand(ratio, advantage, tau):
    gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
    value, gradient, low, high = value_and_gradient(sapo_loss, ratio, advantage, tau_pos=0.7, tau_neg=1.9)
    assert value == pytest.approx(-advantage * gate * 4 / tau)
    assert gradient == pytest.approx(-advantage * 4 * gate * (1 - gate) * ratio, rel=1e-5)
    assert not low
    assert not high


def test_gspo_by_hand():
    logps = torch.tensor([[0.4, 0.2, 9.0], [-0.5, 9.0, 9.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss = gspo_loss(logps, torch.zeros(2, 3), torch.tensor([[-2.0], [-1.0]]), mask, **CLIP)
    ratio = math.exp(0.3)  # of the first row; the second's exp(-0.5) is below 0.8 and clipped
    torch.testing.assert_close(loss.values, torch.tensor([[2 * ratio], [0.8]]).expand(2, 3))
    assert loss.low_clipped.tolist() == [[False] * 3, [True] * 3]
    assert not loss.high_clipped.any()
    loss.values[mask].sum().backward()  # two tokens, each moving the ratio by half of it
    torch.testing.assert_close(logps.grad, torch.tensor([[2 * ratio, 2 * ratio, 0.0], [0.0, 0.0, 0.0]]))


def test_first_update_is_the_policy_gradient(any_loss):
    """At ratio 1 every loss has REINFORCE's gradient, -A at each token."""
    logps = torch.randn(2, 3, requires_grad=True)
    advantages = torch.tensor([[1.5], [-0.5]])
    loss = any_loss(logps, logps.detach().clone(), advantages, MASK)
    loss.values[MASK].sum().backward()
    torch.testing.assert_close(logps.grad, -advantages * MASK)
    assert not loss.low_clipped.any()
    assert not loss.high_clipped.any()


def test_advantages_may_differ_per_token(any_loss):
    logps, old_logps = torch.randn(2, 1, 3)
    advantages = torch.tensor([[1.0, -2.0, 0.5]])
    values = any_loss(logps, old_logps, advantages, torch.ones(1, 3, dtype=torch.bool)).values
    for position in range(3):
        alone = any_loss(logps, old_logps, advantages[:, position, None], torch.ones(1, 3, dtype=torch.bool)).values
        torch.testing.assert_close(values[:, position], alone[:, position])


@pytest.mark.parametrize("how", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"])
def test_padding_changes_nothing(any_loss, how):
    logps, old_logps = torch.randn(2, 2, 3)
    padded = [torch.nn.functional.pad(logp, (0, 2), value=-50.0 * (i + 1)) for i, logp in enumerate((logps, old_logps))]
    padded_mask = torch.nn.functional.pad(MASK, (0, 2))
    window = {"num_tokens": 4, "num_sequences": 2, "max_tokens": 7}
    advantages = torch.tensor([[1.0], [-1.0]])

    def loss_and_gradient(logps, old_logps, mask):
        logps = logps.clone().requires_grad_()
        loss = aggregate(any_loss(logps, old_logps, advantages, mask).values, mask, how, **window)
        loss.backward()
        return loss.detach(), logps.grad

    loss, gradient = loss_and_gradient(logps, old_logps, MASK)
    padded_loss, padded_gradient = loss_and_gradient(*padded, padded_mask)
    torch.testing.assert_close(padded_loss, loss)
    torch.testing.assert_close(padded_gradient, torch.nn.functional.pad(gradient, (0, 2)))


@pytest.mark.parametrize("gap", [1e4, -1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_broken_ratio_gives_no_nan(any_loss, gap, advantage):
    """Exp would overflow, and the clipped branch's gradient become 0 * inf."""
    logps = torch.full((1, 2), gap, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss = any_loss(logps, torch.zeros(1, 2), torch.tensor([[advantage]]), mask)
    loss.values.sum().backward()
    assert torch.isfinite(loss.values).all()
    assert torch.isfinite(logps.grad).all()


def test_losses_are_fp32(any_loss):
    half = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert any_loss(half, half, half, MASK).values.dtype == torch.float32


def test_tis_weights_by_hand():
    learner = torch.tensor([[0.0, 1.0, -1.0, 500.0, -500.0]], requires_grad=True)
    weights = tis_weights(learner, torch.zeros(1, 5), cap=2.0, clamp=10.0)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 2.0, math.exp(-1), 2.0, math.exp(-10)]]))
    assert not weights.requires_grad


def test_tis_makes_an_off_policy_mean_exact():
    """Sampled from another distribution and weighted, a mean is the learner's (as long as no weight is capped)."""
    learner, sampler = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]).log()
    values = torch.tensor([1.0, -2.0, 5.0])
    weighted = (sampler.exp() * tis_weights(learner, sampler) * values).sum()
    torch.testing.assert_close(weighted, (learner.exp() * values).sum())
