import itertools
import math

import pytest
import torch

from lit_rlhf.functional import bradley_terry_loss, outcome_loss, plackett_luce_loss, process_loss

LN2 = math.log(2)


@pytest.mark.parametrize(
    ("chosen", "rejected", "margin", "center_coef", "value", "by_chosen", "by_rejected"),
    [
        (0.0, 0.0, None, 0.0, LN2, -0.5, 0.5),
        (3.0, 1.0, None, 0.0, 0.126928, -0.119203, 0.119203),  # log(1 + e^-2), -σ(-2)
        (3.0, 1.0, 2.0, 0.0, LN2, -0.5, 0.5),  # the gap is just the margin
        (3.0, 1.0, 3.0, 0.0, 1.313262, -0.731059, 0.731059),  # log(1 + e), -σ(1)
        (3.0, 1.0, None, 0.01, 0.286928, -0.039203, 0.199203),  # + 0.01 × 16, and 0.08 on both gradients
    ],
)
def test_bradley_terry_by_hand(chosen, rejected, margin, center_coef, value, by_chosen, by_rejected):
    rewards = torch.tensor([chosen], requires_grad=True), torch.tensor([rejected], requires_grad=True)
    margin = None if margin is None else torch.tensor([margin])
    loss = bradley_terry_loss(*rewards, margin, center_coef=center_coef)
    gradients = torch.autograd.grad(loss.sum(), rewards)
    assert loss.item() == pytest.approx(value, abs=1e-6)
    assert [gradient.item() for gradient in gradients] == pytest.approx([by_chosen, by_rejected], abs=1e-6)


def test_only_centring_sees_a_constant_added_to_all_rewards():
    chosen, rejected = torch.tensor([1.0, -0.5]), torch.tensor([0.3, 0.4])
    torch.testing.assert_close(bradley_terry_loss(chosen + 7, rejected + 7), bradley_terry_loss(chosen, rejected))
    centred = bradley_terry_loss(chosen, rejected, center_coef=0.01)
    assert (bradley_terry_loss(chosen + 7, rejected + 7, center_coef=0.01) > centred + 1).all()


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 9])
def test_plackett_luce_of_equal_scores_counts_the_rankings(num_ranks):
    loss = plackett_luce_loss(torch.full((1, num_ranks), 3.0), torch.ones(1, num_ranks, dtype=torch.bool))
    assert loss.item() == pytest.approx(math.lgamma(num_ranks + 1), abs=1e-5)


def test_plackett_luce_of_two_is_bradley_terry():
    scores = torch.tensor([[1.5, 0.2], [-3.0, 4.0]])
    loss = plackett_luce_loss(scores, torch.ones(2, 2, dtype=torch.bool))
    torch.testing.assert_close(loss, bradley_terry_loss(scores[:, 0], scores[:, 1]))


def test_plackett_luce_is_a_distribution_over_rankings():
    scores = torch.tensor([0.3, -1.2, 2.0, 0.5])
    rankings = torch.stack([scores[list(order)] for order in itertools.permutations(range(4))])
    losses = plackett_luce_loss(rankings, torch.ones(24, 4, dtype=torch.bool))
    assert torch.exp(-losses).sum().item() == pytest.approx(1.0, abs=1e-6)


def test_plackett_luce_by_hand():
    """Of scores 2, 1, 0: e² / (e² + e + 1) × e / (e + 1)."""
    loss = plackett_luce_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool))
    assert loss.item() == pytest.approx(0.407606 + 0.313262, abs=1e-6)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_padding_of_a_ranking_changes_nothing():
    scores = torch.tensor([[2.0, 1.0, 0.5]], requires_grad=True)
    padded = torch.tensor([[2.0, 1.0, 0.5, 1e4, float("nan")]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False, False]])
    loss = plackett_luce_loss(scores, mask[:, :3])
    padded_loss = plackett_luce_loss(padded, mask)
    with torch.autograd.detect_anomaly(check_nan=True):  # no nan anywhere on the way back, masked afterwards or not
        (loss + padded_loss).sum().backward()
    torch.testing.assert_close(padded_loss, loss)
    torch.testing.assert_close(padded.grad, torch.nn.functional.pad(scores.grad, (0, 2)))


def test_the_best_is_pulled_up_and_the_worst_down():
    scores = torch.zeros(1, 4, requires_grad=True)
    plackett_luce_loss(scores, torch.ones(1, 4, dtype=torch.bool)).backward()
    assert (scores.grad.diff() > 0).all()  # in the order of the ranking
    assert scores.grad.sum().item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("logit", "label", "value", "gradient"),
    [
        (0.0, 1.0, LN2, -0.5),
        (2.0, 1.0, 0.126928, -0.119203),
        (2.0, 0.0, 2.126928, 0.880797),
    ],
)
def test_outcome_and_process_by_hand(logit, label, value, gradient):
    mask = torch.tensor([[False, True, True], [False, True, False]])
    for loss in (outcome_loss, process_loss):
        logits = torch.full((2, 3), logit, requires_grad=True)
        labels = torch.full((2,), label) if loss is outcome_loss else torch.full((2, 3), label)
        values = loss(logits, labels, mask)
        values.sum().backward()
        torch.testing.assert_close(values, value * mask.float(), rtol=0, atol=1e-6)
        torch.testing.assert_close(logits.grad, gradient * mask.float(), rtol=0, atol=1e-6)


def test_each_completion_has_its_own_outcome():
    mask = torch.ones(2, 3, dtype=torch.bool)
    values = outcome_loss(torch.full((2, 3), 5.0), torch.tensor([1.0, 0.0]), mask)
    assert (values[0] < 0.01).all()
    assert (values[1] > 4.9).all()


def test_each_step_has_its_own_label():
    step_labels, step_mask = torch.tensor([[0.0, 1.0, 0.0, 0.0]]), torch.tensor([[False, True, False, True]])
    values = process_loss(torch.full((1, 4), 5.0), step_labels, step_mask)
    torch.testing.assert_close(values, torch.tensor([[0.0, 0.006715, 0.0, 5.006715]]), rtol=0, atol=1e-6)


def test_process_loss_of_classes():
    """Three classes (bad, neutral, good): ln 3 where nothing is known; else minus the label's log-softmax."""
    step_labels, step_mask = torch.tensor([[0, 2, 1]]), torch.tensor([[False, True, True]])
    known_nothing = process_loss(torch.zeros(1, 3, 3), step_labels, step_mask)
    torch.testing.assert_close(known_nothing, math.log(3) * step_mask.float())
    logits = torch.tensor([[[9.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]])
    values = process_loss(logits, step_labels, step_mask)
    torch.testing.assert_close(values, torch.tensor([[0.0, 0.407606, 1.407606]]), rtol=0, atol=1e-6)


def test_two_classes_are_one_logit():
    """The difference of two classes' logits is the logit."""
    logits = torch.tensor([[0.3, -1.0, 2.0]])
    step_labels, step_mask = torch.tensor([[0.0, 1.0, 1.0]]), torch.ones(1, 3, dtype=torch.bool)
    two = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    torch.testing.assert_close(process_loss(two, step_labels, step_mask), process_loss(logits, step_labels, step_mask))


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_extreme_rewards_stay_finite(size):
    rewards = torch.tensor([-size, size], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss = bradley_terry_loss(rewards[:1], rewards[1:]).sum() + plackett_luce_loss(rewards[None], mask).sum()
    loss = (
        loss + outcome_loss(rewards[None], torch.zeros(1), mask).sum() + process_loss(rewards[None], mask, mask).sum()
    )
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(rewards.grad).all()


def test_losses_are_fp32():
    half, mask = torch.zeros(2, 2, dtype=torch.bfloat16), torch.ones(2, 2, dtype=torch.bool)
    assert bradley_terry_loss(half[0], half[1], half[0], center_coef=0.01).dtype == torch.float32
    assert plackett_luce_loss(half, mask).dtype == torch.float32
    assert outcome_loss(half, half[0], mask).dtype == torch.float32
    assert process_loss(half, half, mask).dtype == torch.float32
    assert process_loss(half[..., None].expand(2, 2, 3), half, mask).dtype == torch.float32
