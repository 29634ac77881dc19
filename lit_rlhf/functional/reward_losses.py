"""Losses of reward models: on pairs, on rankings, on tokens of judged completions, on judged steps."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid


def bradley_terry_loss(
    chosen: Tensor, rejected: Tensor, margin: Tensor | None = None, *, center_coef: float = 0.0
) -> Tensor:
    """Negative log-likelihood of the preference under Bradley and Terry: -log σ(r_c - r_r - m).

    Args:
        chosen: ``[B]`` rewards of the chosen completions.
        rejected: ``[B]`` rewards of the rejected ones.
        margin: ``[B]`` by how much the reward should differ (Llama 2, arXiv 2307.09288, eq. 2).
        center_coef: Weight of (r_c + r_r)², which keeps rewards around zero (arXiv 2312.09244).

    Returns:
        ``[B]``; ln 2 where both rewards are equal and there is neither margin nor centring.

    Example:
        >>> import torch
        >>> bradley_terry_loss(torch.tensor([1.0, 0.0]), torch.tensor([1.0, -2.0]))
        tensor([0.6931, 0.1269])
    """
    gap = chosen.float() - rejected.float()
    if margin is not None:
        gap = gap - margin
    losses = -logsigmoid(gap)
    return losses + center_coef * (chosen.float() + rejected.float()).square() if center_coef else losses


def plackett_luce_loss(scores: Tensor, rank_mask: Tensor) -> Tensor:
    """Negative log-likelihood of a whole ranking: each item wins against all that rank below it.

    Args:
        scores: ``[B, K]`` rewards, best first.
        rank_mask: ``[B, K]`` bool, True where there is an item; the real ones come first.

    Returns:
        ``[B]``; log K! where all K rewards are equal. For K = 2 it is Bradley and Terry's.

    Example:
        >>> import torch
        >>> plackett_luce_loss(torch.zeros(1, 3), torch.tensor([[True, True, True]]))  # log 3!
        tensor([1.7918])
    """
    masked = scores.float().masked_fill(~rank_mask, float("-inf"))
    below = masked.flip(-1).logcumsumexp(-1).flip(-1)  # over each item and all below it
    return (below - masked).masked_fill(~rank_mask, 0.0).sum(-1)


def outcome_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of an outcome reward model: each token predicts whether the completion ends up right.

    Args:
        logits: ``[B, T]`` of being right, per token.
        labels: ``[B]``, 1 right and 0 wrong.
        mask: ``[B, T]`` bool, the completion's tokens.

    Returns:
        ``[B, T]``, zero where the mask is False (arXiv 2110.14168).

    Example:
        >>> import torch
        >>> outcome_loss(torch.zeros(1, 2), torch.tensor([1.0]), torch.tensor([[False, True]]))
        tensor([[0.0000, 0.6931]])
    """
    targets = labels.float()[:, None].expand(logits.shape)
    return binary_cross_entropy_with_logits(logits.float(), targets, reduction="none").masked_fill(~mask, 0.0)


def process_loss(logits: Tensor, step_labels: Tensor, step_mask: Tensor) -> Tensor:
    """Cross-entropy of a process reward model at the last token of each step.

    Args:
        logits: ``[B, T]`` of the step being right.
        step_labels: ``[B, T]``, 1 right and 0 wrong, where a step ends.
        step_mask: ``[B, T]`` bool, True on the last token of each step.

    Returns:
        ``[B, T]``, zero where the mask is False (arXiv 2305.20050).

    Example:
        >>> import torch
        >>> process_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.tensor([[False, True]]))
        tensor([[0.0000, 0.6931]])
    """
    losses = binary_cross_entropy_with_logits(logits.float(), step_labels.float(), reduction="none")
    return losses.masked_fill(~step_mask, 0.0)
