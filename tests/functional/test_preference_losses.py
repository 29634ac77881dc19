import math

import pytest
import torch

from lit_rlhf.functional import (
    apo_down_loss,
    apo_zero_loss,
    cpo_loss,
    dpo_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    log_odds_ratio,
    nll_loss,
    orpo_odds_loss,
    robust_dpo_loss,
    simpo_loss,
)

LN2 = math.log(2)
# Of chosen and rejected log-probs under policy and reference.
WITH_REFERENCE = {
    "dpo": lambda *logps: dpo_loss(*logps, beta=0.1),
    "cdpo": lambda *logps: dpo_loss(*logps, beta=0.1, label_smoothing=0.1),
    "forward_kl": lambda *logps: dpo_loss(*logps, beta=0.1, f_divergence="forward_kl"),
    "js": lambda *logps: dpo_loss(*logps, beta=0.1, f_divergence="js"),
    "alpha": lambda *logps: dpo_loss(*logps, beta=0.1, f_divergence="alpha", alpha=0.3),
    "robust": lambda *logps: robust_dpo_loss(*logps, beta=0.1, label_smoothing=0.1),
    "ipo": lambda *logps: ipo_loss(*logps, beta=0.1),
    "hinge": lambda *logps: hinge_loss(*logps, beta=0.1),
    "apo_zero": lambda *logps: apo_zero_loss(*logps, beta=0.1),
    "apo_down": lambda *logps: apo_down_loss(*logps, beta=0.1),
}
WITHOUT_REFERENCE = {
    "cpo": lambda chosen, rejected, *_: cpo_loss(chosen, rejected, beta=0.1),
    "simpo": lambda chosen, rejected, *_: simpo_loss(chosen, rejected, beta=2.0, gamma=0.5),
    "orpo": lambda chosen, rejected, *_: orpo_odds_loss(chosen, rejected, beta=0.1),
}
EVERY = {**WITH_REFERENCE, **WITHOUT_REFERENCE}


@pytest.fixture
def logps():
    """Of four pairs, under policy and reference."""
    generator = torch.Generator().manual_seed(0)
    return [-0.2 - 3 * torch.rand(4, generator=generator) for _ in range(4)]


def loss_and_gradient(loss, *values):
    """Of one pair: the loss and its derivatives by the policy's two log-probs."""
    tensors = [torch.tensor([value], requires_grad=place < 2) for place, value in enumerate(values)]
    losses = loss(*tensors).losses
    return losses.item(), *(gradient.item() for gradient in torch.autograd.grad(losses.sum(), tensors[:2]))


# -- by hand: log-ratios r_c = 3 and r_r = -1, so h = 4 and β h = 2 at β = 0.5 -----------------------------------------


@pytest.mark.parametrize(
    ("loss", "value", "by_chosen", "by_rejected"),
    [
        # log(1 + e^-2); its derivative by h is -β σ(-2)
        (lambda *logps: dpo_loss(*logps, beta=0.5), 0.126928, -0.059601, 0.059601),
        # 0.9 log(1 + e^-2) + 0.1 log(1 + e^2); β (σ(2) - 0.9)
        (lambda *logps: dpo_loss(*logps, beta=0.5, label_smoothing=0.1), 0.326928, -0.009601, 0.009601),
        # (0.9 log(1 + e^-2) - 0.1 log(1 + e^2)) / 0.8; -β (0.9 σ(-2) + 0.1 σ(2)) / 0.8
        (lambda *logps: robust_dpo_loss(*logps, beta=0.5, label_smoothing=0.1), -0.123072, -0.122101, 0.122101),
        # (4 - 1)²; 2 × 3
        (lambda *logps: ipo_loss(*logps, beta=0.5), 9.0, 6.0, -6.0),
        # past the margin: βh = 2 > 1
        (lambda *logps: hinge_loss(*logps, beta=0.5), 0.0, 0.0, 0.0),
        # 1 - 0.1 × 4
        (lambda *logps: hinge_loss(*logps, beta=0.1), 0.6, -0.1, 0.1),
        # 1 - σ(1.5) + σ(-0.5); σ' = σ(1 - σ)
        (lambda *logps: apo_zero_loss(*logps, beta=0.5), 0.559966, -0.074573, 0.117502),
        # σ(1.5) + 1 - σ(2); β σ'(1.5) - β σ'(2), β σ'(2)
        (lambda *logps: apo_down_loss(*logps, beta=0.5), 0.936778, 0.022076, 0.052497),
        # f' = 1 - 1/u: 1 - e^-3 and 1 - e
        (lambda *logps: dpo_loss(*logps, beta=0.5, f_divergence="forward_kl"), 0.233772, -0.005189, 0.283323),
        # f' = log(2u / (1 + u)): log 2 - log(1 + e^-3) and log 2 - log(1 + e)
        (lambda *logps: dpo_loss(*logps, beta=0.5, f_divergence="js"), 0.426149, -0.008228, 0.126832),
        # f' = (1 - u^-α) / α, α = ½: 2 (1 - e^-1.5) and 2 (1 - e^½)
        (lambda *logps: dpo_loss(*logps, beta=0.5, f_divergence="alpha"), 0.215407, -0.021620, 0.159750),
    ],
)
def test_by_hand(loss, value, by_chosen, by_rejected):
    assert loss_and_gradient(loss, -5.0, -9.0, -8.0, -8.0) == pytest.approx((value, by_chosen, by_rejected), abs=2e-6)


@pytest.mark.parametrize(
    ("loss", "value", "by_chosen", "by_rejected"),
    [
        # log(1 + e^-1); -β σ(-1)
        (lambda *logps: cpo_loss(*logps, beta=2.0), 0.313262, -0.537883, 0.537883),
        # β (0.5 - 0.3) = 0.4; -β σ(-0.4)
        (lambda *logps: simpo_loss(*logps, beta=2.0, gamma=0.3), 0.513015, -0.802625, 0.802625),
        # odds e^-0.5 / (1 - e^-0.5) = 1.541494 and e^-1 / (1 - e^-1) = 0.581977; d log odds = 1 / (1 - p)
        (lambda *logps: orpo_odds_loss(*logps, beta=2.0), 0.640600, -1.393088, 0.867140),
    ],
)
def test_by_hand_without_reference(loss, value, by_chosen, by_rejected):
    assert loss_and_gradient(loss, -0.5, -1.0) == pytest.approx((value, by_chosen, by_rejected), abs=2e-6)


def test_log_odds_ratio_by_hand():
    chosen, rejected = torch.tensor([0.9, 0.5, 0.2]).log(), torch.tensor([0.5, 0.5, 0.8]).log()
    expected = torch.tensor([9.0, 1.0, 0.0625]).log()
    torch.testing.assert_close(log_odds_ratio(chosen, rejected), expected)


@pytest.mark.parametrize(
    ("good", "log_ratio", "kl", "value", "gradient"),
    [
        (True, 2.0, 1.0, 0.9 * 0.377541, -0.9 * 0.5 * 0.235004),  # λ_D (1 - σ(½)), -λ_D β σ'(½)
        (False, 2.0, 1.0, 1.3 * 0.622459, 1.3 * 0.5 * 0.235004),
        (True, 2.0, -5.0, 0.9 * 0.268941, -0.9 * 0.5 * 0.196612),  # a negative estimate of the KL counts as 0
        (False, -2.0, 0.0, 1.3 * 0.268941, 1.3 * 0.5 * 0.196612),
    ],
)
def test_kto_by_hand(good, log_ratio, kl, value, gradient):
    logps = torch.tensor([log_ratio - 7], requires_grad=True)
    reference_point = torch.tensor(kl, requires_grad=True)
    weights = {"desirable_weight": 0.9, "undesirable_weight": 1.3}
    loss = kto_loss(logps, torch.tensor([-7.0]), torch.tensor([good]), reference_point, beta=0.5, **weights)
    loss.sum().backward()
    assert loss.item() == pytest.approx(value, abs=1e-6)
    assert logps.grad.item() == pytest.approx(gradient, abs=1e-6)
    assert reference_point.grad is None  # the reference point is a constant


# -- where policy and reference are the same ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dpo", LN2),
        ("cdpo", LN2),
        ("robust", LN2),
        ("forward_kl", LN2),
        ("js", LN2),
        ("alpha", LN2),
        ("ipo", 25.0),
        ("hinge", 1.0),
        ("apo_zero", 1.0),
        ("apo_down", 1.0),
    ],
)
def test_value_at_the_start(name, value, logps):
    loss = WITH_REFERENCE[name](logps[0], logps[1], logps[0], logps[1])
    torch.testing.assert_close(loss.losses, torch.full((4,), value), rtol=0, atol=1e-6)
    torch.testing.assert_close(loss.chosen_rewards, torch.zeros(4), rtol=0, atol=1e-7)
    torch.testing.assert_close(loss.rejected_rewards, torch.zeros(4), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("name", "value"), [("cpo", LN2), ("simpo", 1.313262), ("orpo", 0.1 * LN2)])
def test_value_where_both_completions_are_as_likely(name, value, logps):
    loss = WITHOUT_REFERENCE[name](logps[0], logps[0])
    torch.testing.assert_close(loss.losses, torch.full((4,), value))


def test_kto_at_the_start_is_half_the_weight(logps):
    good_mask = torch.tensor([True, False, True, False])
    loss = kto_loss(logps[0], logps[0], good_mask, torch.zeros(()), beta=0.1, undesirable_weight=1.33)
    torch.testing.assert_close(loss, torch.tensor([0.5, 0.665, 0.5, 0.665]))


# -- what sets each loss apart -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_a_step_downhill_widens_the_gap(name, logps):
    chosen, rejected = logps[0].clone().requires_grad_(), logps[1].clone().requires_grad_()
    EVERY[name](chosen, rejected, logps[2], logps[3]).losses.sum().backward()
    assert (chosen.grad < rejected.grad).all()


def test_apo_zero_moves_each_by_itself_and_apo_down_lowers_both(logps):
    for loss, sign_of_chosen in ((apo_zero_loss, -1), (apo_down_loss, 1)):
        chosen, rejected = logps[0].clone().requires_grad_(), logps[0].clone().requires_grad_()
        loss(chosen, rejected, logps[0] + 9, logps[0] - 9, beta=0.2).losses.sum().backward()  # h = -18
        assert (chosen.grad.sign() == sign_of_chosen).all(), loss.__name__
        assert (rejected.grad > 0).all()


def test_smoothed_dpo_is_least_where_the_odds_are_the_labels(logps):
    margin = torch.tensor([math.log(0.9 / 0.1)], requires_grad=True)
    zeros = torch.zeros(1)
    dpo_loss(margin, zeros, zeros, zeros, beta=1.0, label_smoothing=0.1).losses.backward()
    assert margin.grad.item() == pytest.approx(0.0, abs=1e-7)


def test_robust_dpo_is_unbiased(logps):
    """Over labels of which a share ε is flipped, its mean is DPO on the labels as they were."""
    flipped = logps[1], logps[0], logps[3], logps[2]
    settings = {"beta": 0.7, "label_smoothing": 0.2}
    mean = 0.8 * robust_dpo_loss(*logps, **settings).losses + 0.2 * robust_dpo_loss(*flipped, **settings).losses
    torch.testing.assert_close(mean, dpo_loss(*logps, beta=0.7).losses)


def test_alpha_divergence_lies_between_the_two_kls(logps):
    near_reverse = dpo_loss(*logps, beta=0.7, f_divergence="alpha", alpha=1e-3).losses
    near_forward = dpo_loss(*logps, beta=0.7, f_divergence="alpha", alpha=0.999).losses
    torch.testing.assert_close(near_reverse, dpo_loss(*logps, beta=0.7).losses, rtol=0, atol=5e-3)
    torch.testing.assert_close(
        near_forward, dpo_loss(*logps, beta=0.7, f_divergence="forward_kl").losses, rtol=0, atol=5e-3
    )


def test_f_divergences_agree_near_the_reference(logps):
    """All have f''(1) = 1 but the Jensen-Shannon, whose curvature is a half."""
    near = logps[0] + 1e-3, logps[1] - 1e-3, logps[0], logps[1]
    margins = {}
    for divergence in ("reverse_kl", "forward_kl", "js", "alpha"):
        loss = dpo_loss(*near, beta=1.0, f_divergence=divergence)
        margins[divergence] = (loss.chosen_rewards - loss.rejected_rewards).mean().item()
    assert margins == {
        "reverse_kl": pytest.approx(2e-3, rel=1e-2),
        "forward_kl": pytest.approx(2e-3, rel=1e-2),
        "js": pytest.approx(1e-3, rel=1e-2),
        "alpha": pytest.approx(2e-3, rel=1e-2),
    }


def test_simpo_margin_is_in_nats_per_token():
    """The gradient is half its greatest, β / 2, where the means differ by gamma, whatever β is."""
    for beta in (1.0, 2.5):
        result = loss_and_gradient(lambda c, r, beta=beta: simpo_loss(c, r, beta=beta, gamma=0.5), -1.0, -1.5)
        assert result == pytest.approx((LN2, -beta / 2, beta / 2))


@pytest.mark.parametrize("label_smoothing", [-0.1, 0.5, 0.9])
def test_smoothing_out_of_range_is_refused(label_smoothing, logps):
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below"):
        dpo_loss(*logps, beta=0.1, label_smoothing=label_smoothing)
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below"):
        robust_dpo_loss(*logps, beta=0.1, label_smoothing=label_smoothing)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0])
def test_alpha_out_of_range_is_refused(alpha, logps):
    with pytest.raises(ValueError, match="alpha must be above 0 and below 1, got"):
        dpo_loss(*logps, beta=0.1, f_divergence="alpha", alpha=alpha)


# -- numerics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_gradient_is_that_of_the_value(name, logps):
    """Central differences in fp32, whose noise at step 1e-2 is some 1e-5."""
    chosen, rejected = logps[0].clone().requires_grad_(), logps[1].clone().requires_grad_()
    EVERY[name](chosen, rejected, logps[2], logps[3]).losses.sum().backward()
    step = 1e-2
    for place, gradient in ((0, chosen.grad), (1, rejected.grad)):
        moved = [[value + sign * step * (i == place) for i, value in enumerate(logps)] for sign in (1, -1)]
        up, down = (EVERY[name](*values).losses for values in moved)
        torch.testing.assert_close(gradient, (up - down) / (2 * step), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("chosen", "rejected"), [(-1e4, 0.0), (0.0, -1e4), (-1e4, -1e4), (0.0, 0.0)])
def test_extreme_logps_give_no_nan(name, chosen, rejected):
    tensors = [torch.tensor([value], requires_grad=True) for value in (chosen, rejected, -50.0, -50.0)]
    loss = EVERY[name](*tensors)
    loss.losses.sum().backward()
    assert torch.isfinite(loss.losses).all()
    for tensor in tensors[:2]:
        assert torch.isfinite(tensor.grad).all()


def test_kto_of_extreme_logps_gives_no_nan():
    logps = torch.tensor([-1e4, 0.0, -1e4, 0.0], requires_grad=True)
    good_mask = torch.tensor([True, True, False, False])
    loss = kto_loss(logps, torch.full((4,), -50.0), good_mask, torch.tensor(1e4), beta=0.1)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(logps.grad).all()


@pytest.mark.parametrize("name", ["dpo", "cdpo", "robust", "forward_kl", "js", "alpha"])
def test_a_pair_that_is_the_wrong_way_round_keeps_its_gradient(name):
    """However far the chosen completion has fallen below the reference."""
    for log_ratio in (-5.0, -30.0, -300.0):
        _, by_chosen, _ = loss_and_gradient(WITH_REFERENCE[name], log_ratio, 0.0, 0.0, 0.0)
        assert by_chosen < -0.05


@pytest.mark.parametrize("name", ["forward_kl", "js", "alpha"])
def test_f_divergences_order_completions_far_from_the_reference(name):
    """Both have fallen, the rejected one further: the pair is right, and nothing is left to gain."""
    loss = WITH_REFERENCE[name](torch.tensor([-95.0]), torch.tensor([-120.0]), torch.zeros(1), torch.zeros(1))
    assert loss.losses.item() < LN2
    assert loss.chosen_rewards > loss.rejected_rewards


@pytest.mark.parametrize("mean", [-1e-9, -1e-6, -1e-4, -0.1, -0.6931, -0.7, -2.0, -15.0, -20.0, -300.0])
def test_log_odds_agree_with_double_precision(mean):
    """Near p = 1, where 1 - exp cancels, around p = ½, and far out."""
    clamped = min(mean, -1e-6)
    exact = clamped - math.log(-math.expm1(clamped))
    rejected = torch.tensor([0.5]).log()  # odds 1
    assert log_odds_ratio(torch.tensor([mean]), rejected).item() == pytest.approx(exact, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("mean", [-1e-4, -0.1, -0.6931, -2.0, -15.0, -300.0])
def test_log_odds_have_the_exact_gradient(mean):
    """1 / (1 - p)."""
    chosen = torch.tensor([mean], requires_grad=True)
    log_odds_ratio(chosen, torch.tensor([-1.0])).backward()
    assert chosen.grad.item() == pytest.approx(-1 / math.expm1(mean), rel=1e-4)


def long_completions():
    """Log-probs of two 2,000-token completions: many near-certain tokens, some rare; the rejected one a bit worse."""
    chosen = 0.8 * torch.rand(2000, generator=torch.Generator().manual_seed(0)).log()
    return chosen, 1.2 * chosen


def test_orpo_and_simpo_of_long_completions_stay_in_scale():
    tokens = [logps.requires_grad_() for logps in long_completions()]
    chosen, rejected = (logps.mean()[None] for logps in tokens)
    nll = nll_loss(tokens[0]).mean()
    odds = orpo_odds_loss(chosen, rejected, beta=1.0).losses
    simpo = simpo_loss(chosen, rejected, beta=2.0, gamma=0.5).losses
    assert -1.5 < chosen.item() < -0.5  # a realistic mean
    assert 0.1 < (odds / nll).item() < 10
    assert 0.1 < (simpo / nll).item() < 10
    (odds + nll + simpo).sum().backward()
    for logps in tokens:
        assert torch.isfinite(logps.grad).all()
        assert logps.grad.abs().min() > 1e-6  # 1/2000 of something near 1, on every token


def test_sums_would_drown_the_likelihood():
    """The defect that means prevent: the odds term of sums is hundreds of times the likelihood, or nothing."""
    chosen, rejected = (logps.sum()[None] for logps in long_completions())
    assert orpo_odds_loss(rejected, chosen, beta=1.0).losses.item() > 100
    assert orpo_odds_loss(chosen, rejected, beta=1.0).losses.item() < 1e-20


@pytest.mark.parametrize("name", EVERY)
def test_losses_are_fp32(name, logps):
    half = [values.bfloat16() for values in logps]
    loss = EVERY[name](*half)
    exact = EVERY[name](*(values.float() for values in half))
    assert {values.dtype for values in loss} == {torch.float32}
    for values, expected in zip(loss, exact, strict=True):
        torch.testing.assert_close(values, expected)


def test_kto_is_fp32(logps):
    half = [values.bfloat16() for values in logps]
    loss = kto_loss(half[0], half[2], torch.ones(4, dtype=torch.bool), torch.zeros((), dtype=torch.bfloat16), beta=0.1)
    assert loss.dtype == torch.float32


@pytest.mark.parametrize("name", EVERY)
def test_rewards_carry_no_gradient_and_losses_do(name, logps):
    loss = EVERY[name](*(values.clone().requires_grad_() for values in logps))
    assert loss.losses.requires_grad
    assert not loss.chosen_rewards.requires_grad
    assert not loss.rejected_rewards.requires_grad


@pytest.mark.parametrize("name", EVERY)
def test_pairs_do_not_see_each_other(name, logps):
    together = EVERY[name](*logps)
    for place in range(4):
        alone = EVERY[name](*(values[place : place + 1] for values in logps))
        for values, expected in zip(alone, together, strict=True):
            torch.testing.assert_close(values, expected[place : place + 1])
