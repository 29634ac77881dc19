"""Losses of supervised fine-tuning, token by token."""

from torch import Tensor


def nll_loss(logps: Tensor) -> Tensor:
    """Negative log-likelihood.

    Args:
        logps: ``[B, T]`` log-probs of the tokens, in nats.

    Returns:
        ``[B, T]``, to be minimised.

    Example:
        >>> import torch
        >>> nll_loss(torch.tensor([[-0.5, -2.0]]))
        tensor([[0.5000, 2.0000]])
    """
    return -logps.float()


def dft_loss(logps: Tensor) -> Tensor:
    """Dynamic fine-tuning: the negative log-likelihood, each token weighted by its own probability.

    The weight takes the 1/p out of the gradient, which otherwise lets rare tokens dominate (arXiv 2508.05629, eq. 9).

    Args:
        logps: ``[B, T]`` log-probs of the tokens, in nats.

    Returns:
        ``[B, T]``, to be minimised; no gradient flows through the weight. Its value does not compare with a negative
        log-likelihood: of a token of probability p it is at most 1/e, at p = 1/e, and 0 at both ends.

    Example:
        >>> import torch
        >>> dft_loss(torch.tensor([[0.5, 0.25]]).log())
        tensor([[0.3466, 0.3466]])
    """
    logps = logps.float()
    return -logps.detach().exp() * logps
