from typing import get_args

import pytest
import torch

from lit_rlhf.functional import Aggregation, aggregate

WAYS = get_args(Aggregation)
VALUES = torch.tensor([[1.0, 3.0, 5.0, 7.0], [2.0, 9.0, 9.0, 9.0]])
MASK = torch.tensor([[True, True, True, True], [True, False, False, False]])
WINDOW = {"num_tokens": 5, "num_sequences": 2, "max_tokens": 10}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("token_mean", 18 / 5),
        ("seq_mean_token_mean", (4 + 2) / 2),
        ("seq_mean_token_sum", (16 + 2) / 2),
        ("constant", 18 / 20),
    ],
)
def test_by_hand(how, expected):
    assert aggregate(VALUES, MASK, how, **WINDOW).item() == pytest.approx(expected)
    as_tensors = {name: torch.tensor(count) for name, count in WINDOW.items()}
    assert aggregate(VALUES, MASK, how, **as_tensors).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("how", "long", "short"),
    [
        ("token_mean", 1 / 5, 1 / 5),
        ("seq_mean_token_mean", 1 / 8, 1 / 2),  # 1 / length: the length bias
        ("seq_mean_token_sum", 1 / 2, 1 / 2),
        ("constant", 1 / 20, 1 / 20),
    ],
)
def test_weight_of_a_token(how, long, short):
    """Equal tokens weigh the same in a long and in a short row, except under the mean of row means."""
    values = VALUES.clone().requires_grad_()
    aggregate(values, MASK, how, **WINDOW).backward()
    torch.testing.assert_close(values.grad, torch.tensor([[long], [short]]) * MASK)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("cut", [[8], [4, 4], [2, 2, 2, 2], [1, 5, 2], [1] * 8])
def test_micro_batches_add_up_to_the_window(how, cut):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 6, generator=generator)
    mask = torch.arange(6) < torch.tensor([6, 1, 3, 0, 2, 5, 4, 1])[:, None]
    window = {"num_tokens": mask.sum(), "num_sequences": 8, "max_tokens": 6}

    def loss_and_gradient(cut):
        leaf = values.clone().requires_grad_()
        losses = []
        for part, part_mask in zip(leaf.split(cut), mask.split(cut), strict=True):
            width = max(1, int(part_mask.sum(-1).max()))  # padded to its own longest row only
            losses.append(aggregate(part[:, :width], part_mask[:, :width], how, **window))
            losses[-1].backward()
        return sum(losses).detach(), leaf.grad

    torch.testing.assert_close(loss_and_gradient(cut), loss_and_gradient([8]))


@pytest.mark.parametrize("how", WAYS)
def test_masked_rows_equal_removed_rows(how):
    """A masked-out completion (say a truncated one) must not dilute the loss: the window does not count it."""
    mask = torch.cat([MASK, torch.zeros(3, 4, dtype=torch.bool)])
    values = torch.cat([VALUES, torch.full((3, 4), 1e3)])
    torch.testing.assert_close(aggregate(values, mask, how, **WINDOW), aggregate(VALUES, MASK, how, **WINDOW))


@pytest.mark.parametrize("how", WAYS)
def test_nothing_to_train_on_is_zero_with_a_graph(how):
    values = torch.full((2, 3), float("nan"), requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    loss = aggregate(values, nothing, how, num_tokens=torch.tensor(0), num_sequences=0, max_tokens=3)
    loss.backward()
    assert loss.item() == 0
    assert (values.grad == 0).all()


def test_bf16_values_are_summed_in_fp32():
    values = torch.ones(1, 1001, dtype=torch.bfloat16)  # in bf16 the sum would be 1000
    mask = torch.ones(1, 1001, dtype=torch.bool)
    loss = aggregate(values, mask, "seq_mean_token_sum", num_tokens=1001, num_sequences=1, max_tokens=1001)
    assert loss.item() == 1001


def test_unknown_aggregation():
    with pytest.raises(ValueError, match="'mean'"):
        aggregate(VALUES, MASK, "mean", **WINDOW)
