"""Losses of reward models: on pairs, on rankings, on tokens of judged completions, on judged steps.

All are in fp32 whatever comes in.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid


def bradley_terry_loss(
    chosen: Tensor, rejected: Tensor, margin: Tensor | None = None, *, center_coef: float = 0.0
) -> Tensor:
    """Negative log-likelihood of the preference under Bradley and Terry: -log σ(r_c - r_r - m).

    Only differences count, so a constant may be added to all rewards; ``center_coef`` takes that freedom away.

    Args:
        chosen: ``[B]`` rewards of the chosen completions.
        rejected: ``[B]`` rewards of the rejected ones.
        margin: ``[B]`` by how much the reward should differ (Llama 2, arXiv 2307.09288, eq. 2).
        center_coef: Weight of (r_c + r_r)², which keeps rewards around zero (arXiv 2312.09244).

    Returns:
        ``[B]``; ln 2 where both rewards are 0 and there is no margin.

    Example:
        >>> bradley_terry_loss(torch.tensor([1.0, 0.0]), torch.tensor([1.0, -2.0]))
        tensor([0.6931, 0.1269])
    """
    chosen, rejected = chosen.float(), rejected.float()
    gap = chosen - rejected if margin is None else chosen - rejected - margin.float()
    return -logsigmoid(gap) + center_coef * (chosen + rejected).square()


def plackett_luce_loss(scores: Tensor, rank_mask: Tensor) -> Tensor:
    """Negative log-likelihood of a whole ranking: each item in turn is chosen among itself and all below it.

    -Σ_k log(exp r_k / Σ_{j ≥ k} exp r_j) (Plackett, 1975; for reward models arXiv 2301.11270).

    Args:
        scores: ``[B, K]`` rewards, best first.
        rank_mask: ``[B, K]`` bool, True where there is an item.

    Returns:
        ``[B]``; log K! where the rewards of K items are equal. For two items it is Bradley and Terry's.

    Example:
        >>> plackett_luce_loss(torch.zeros(1, 3), torch.tensor([[True, True, True]]))  # log 3!
        tensor([1.7918])
    """
    scores = scores.float().masked_fill(~rank_mask, 0.0)
    num_ranks = scores.shape[-1]
    itself = torch.eye(num_ranks, dtype=torch.bool, device=scores.device)  # so that no row is empty, padding's neither
    rivals_mask = itself.logical_not().triu() & rank_mask[:, None, :] | itself  # [B, K, K]
    among = scores[:, None, :].expand_as(rivals_mask).masked_fill(~rivals_mask, float("-inf"))
    return (among.logsumexp(-1) - scores).masked_fill(~rank_mask, 0.0).sum(-1)


def outcome_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of an outcome reward model: each token predicts whether the completion ends up right.

    Args:
        logits: ``[B, T]`` of being right, per token.
        labels: ``[B]``, 1 right and 0 wrong.
        mask: ``[B, T]`` bool, the completion's tokens.

    Returns:
        ``[B, T]``, zero where the mask is False (arXiv 2110.14168); ln 2 where the logit is 0.

    Example:
        >>> outcome_loss(torch.zeros(1, 2), torch.tensor([1.0]), torch.tensor([[False, True]]))
        tensor([[0.0000, 0.6931]])
    """
    targets = labels.float()[:, None].expand(logits.shape)
    return binary_cross_entropy_with_logits(logits.float(), targets, reduction="none").masked_fill(~mask, 0.0)


def process_loss(logits: Tensor, step_labels: Tensor, step_mask: Tensor) -> Tensor:
    """Cross-entropy of a process reward model at the last token of each step (arXiv 2305.20050).

    Args:
        logits: ``[B, T]`` of the step being right; or ``[B, T, C]``, one per class.
        step_labels: ``[B, T]``, 1 right and 0 wrong, where a step ends; or the class, 0 to C - 1.
        step_mask: ``[B, T]`` bool, True on the last token of each step.

    Returns:
        ``[B, T]``, zero where the mask is False; ln 2, or ln C, where all logits are 0.

    Example:
        >>> step_labels, step_mask = torch.tensor([[0.0, 1.0]]), torch.tensor([[False, True]])
        >>> process_loss(torch.zeros(1, 2), step_labels, step_mask)
        tensor([[0.0000, 0.6931]])
        >>> process_loss(torch.zeros(1, 2, 3), step_labels, step_mask)
        tensor([[0.0000, 1.0986]])
    """
    if logits.dim() == 3:
        losses = cross_entropy(logits.float().transpose(1, 2), step_labels.long(), reduction="none")
    else:
        losses = binary_cross_entropy_with_logits(logits.float(), step_labels.float(), reduction="none")
    return losses.masked_fill(~step_mask, 0.0)
