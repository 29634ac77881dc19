import math

import pytest
import torch

from lit_rlhf.functional import dft_loss, nll_loss


@pytest.mark.parametrize(
    ("loss", "probability", "value", "gradient"),
    [
        (nll_loss, 0.25, math.log(4), -1.0),
        (dft_loss, 0.25, 0.25 * math.log(4), -0.25),  # the weight p is a constant: else the gradient had p log p too
        (dft_loss, 1.0, 0.0, -1.0),
        (dft_loss, 1 / math.e, 1 / math.e, -1 / math.e),  # the greatest value there is
    ],
)
def test_by_hand(loss, probability, value, gradient):
    logps = torch.tensor([[math.log(probability)]], requires_grad=True)
    values = loss(logps)
    values.sum().backward()
    assert values.item() == pytest.approx(value, abs=1e-6)
    assert logps.grad.item() == pytest.approx(gradient, abs=1e-6)


def test_dft_bounds_the_gradient_of_the_logits():
    """A token's gradient by its own logit is p (1 - p): rare tokens pull least, where they pull most in nll."""
    logits = torch.tensor([[8.0, 0.0, -8.0]], requires_grad=True)
    for loss, bound in ((nll_loss, 1.0), (dft_loss, 0.25)):
        gradients = []
        for token in range(3):
            (gradient,) = torch.autograd.grad(loss(logits.log_softmax(-1))[0, token], logits)
            gradients.append(gradient[0, token].abs().item())
        assert max(gradients) <= bound
        assert (gradients[2] > gradients[0]) is (loss is nll_loss)


@pytest.mark.parametrize("loss", [nll_loss, dft_loss])
def test_of_a_hopeless_token_is_finite_and_fp32(loss):
    logps = torch.tensor([[-1e4, -0.0]], dtype=torch.bfloat16, requires_grad=True)
    values = loss(logps)
    values.sum().backward()
    assert values.dtype == torch.float32
    assert torch.isfinite(values).all()
    assert torch.isfinite(logps.grad).all()
