"""Every estimator against the exact KL of a five-token vocabulary: its value, and its gradient as a loss."""

import pytest
import torch

from lit_rlhf.functional import kl_estimate

POLICY_LOGITS = torch.tensor([1.2, -0.3, 0.4, -1.5, 0.1])
REFERENCE_LOGITS = torch.tensor([0.2, 0.6, -0.9, -0.1, 0.5])
ESTIMATORS = ["k1", "k2", "k3"]


def exact_kl(logits_p, logits_q):
    log_p, log_q = logits_p.log_softmax(-1), logits_q.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum()


def expected_estimate(logits, **settings):
    """Mean over tokens sampled from the policy; their probabilities are constants, sampling passes no gradient."""
    logps = logits.log_softmax(-1)
    return (logps.detach().exp() * kl_estimate(logps, REFERENCE_LOGITS.log_softmax(-1), **settings)).sum()


@pytest.fixture
def logits():
    return POLICY_LOGITS.clone().requires_grad_()


@pytest.fixture
def exact_gradient():
    logits = POLICY_LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(exact_kl(logits, REFERENCE_LOGITS), logits)
    assert gradient.abs().max() > 0.1
    return gradient


@pytest.mark.parametrize("straight_through", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(logits, estimator, straight_through):
    estimate = expected_estimate(logits, estimator=estimator, straight_through=straight_through)
    torch.testing.assert_close(estimate.detach(), exact_kl(POLICY_LOGITS, REFERENCE_LOGITS), rtol=1e-6, atol=1e-7)


def test_k2_is_biased_in_value(logits):
    log_ratio = POLICY_LOGITS.log_softmax(-1) - REFERENCE_LOGITS.log_softmax(-1)
    estimate = expected_estimate(logits, estimator="k2").detach()
    torch.testing.assert_close(estimate, (POLICY_LOGITS.softmax(-1) * log_ratio**2 / 2).sum())
    assert (estimate - exact_kl(POLICY_LOGITS, REFERENCE_LOGITS)).abs() > 0.01


def test_k2_gradient_is_that_of_the_reverse_kl(logits, exact_gradient):
    (gradient,) = torch.autograd.grad(expected_estimate(logits, estimator="k2"), logits)
    torch.testing.assert_close(gradient, exact_gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_straight_through_has_the_exact_gradient(logits, exact_gradient, estimator):
    (gradient,) = torch.autograd.grad(expected_estimate(logits, estimator=estimator, straight_through=True), logits)
    torch.testing.assert_close(gradient, exact_gradient, rtol=1e-5, atol=1e-7)


def test_k1_as_a_loss_does_nothing(logits):
    (gradient,) = torch.autograd.grad(expected_estimate(logits, estimator="k1"), logits)
    torch.testing.assert_close(gradient, torch.zeros(5), rtol=0, atol=1e-7)


def test_k3_as_a_loss_descends_the_forward_kl(logits, exact_gradient):
    (gradient,) = torch.autograd.grad(expected_estimate(logits, estimator="k3"), logits)
    (forward,) = torch.autograd.grad(exact_kl(REFERENCE_LOGITS, logits), logits)
    torch.testing.assert_close(gradient, forward, rtol=1e-5, atol=1e-7)
    assert (gradient - exact_gradient).abs().max() > 0.01  # which is not the reverse one


@pytest.mark.parametrize("settings", [{"estimator": "k2"}, {"estimator": "k3"}, {"straight_through": True}])
def test_descending_a_penalty_lowers_the_exact_kl(logits, settings):
    """The sign: written with pi / ref instead of ref / pi, the penalty would reward drifting away."""
    (gradient,) = torch.autograd.grad(expected_estimate(logits, **settings), logits)
    assert exact_kl(POLICY_LOGITS - 0.1 * gradient, REFERENCE_LOGITS) < exact_kl(POLICY_LOGITS, REFERENCE_LOGITS)


def test_penalty_in_the_reward_lowers_the_exact_kl(logits):
    """REINFORCE on the reward -k1 descends the KL."""
    logps = logits.log_softmax(-1)
    rewards = -kl_estimate(logps.detach(), REFERENCE_LOGITS.log_softmax(-1), "k1")
    loss = -(logps.detach().exp() * rewards * logps).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert exact_kl(POLICY_LOGITS - 0.1 * gradient, REFERENCE_LOGITS) < exact_kl(POLICY_LOGITS, REFERENCE_LOGITS)


@pytest.mark.parametrize(
    ("estimator", "expected"), [("k1", [2.0, -1.0]), ("k2", [2.0, 0.5]), ("k3", [1.1353353, 0.7182818])]
)
def test_values_by_hand(estimator, expected):
    values = kl_estimate(torch.tensor([-1.0, -3.0]), torch.tensor([-3.0, -2.0]), estimator)
    torch.testing.assert_close(values, torch.tensor(expected))


def test_k3_keeps_its_digits_near_zero():
    gap = torch.tensor([1e-3, -1e-3])
    torch.testing.assert_close(kl_estimate(gap, torch.zeros(2), "k3"), gap.square() / 2, rtol=1e-3, atol=0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("gap", [1000.0, -1000.0])
def test_huge_gaps_stay_finite_and_straight_through_still_pulls(estimator, gap):
    logps = torch.tensor([gap], requires_grad=True)
    value = kl_estimate(logps, torch.zeros(1), estimator, straight_through=True, clamp=20.0)
    value.backward()
    assert torch.isfinite(value).all()
    assert logps.grad.item() == (20 if gap > 0 else -20)
    (plain,) = torch.autograd.grad(kl_estimate(logps, torch.zeros(1), estimator).sum(), logps)
    assert plain.item() == 0


def test_result_is_fp32():
    assert kl_estimate(torch.zeros(1).bfloat16(), torch.zeros(1).bfloat16()).dtype == torch.float32


def test_unknown_estimator():
    with pytest.raises(ValueError, match="'k4'"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")
