"""Rewards to advantages: group baselines, scaling, whitening over all ranks, returns."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["group_mean", "leave_one_out", "none"]
Scale = Literal["group", "batch", "none"]
Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over all ranks and returns the sum on every rank."""


def group_stats(rewards: Tensor, group_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and size of each sample's group.

    A group is all samples with the same id, wherever they stand; it must not be split over ranks.

    Args:
        rewards: ``[N]``, finite.
        group_ids: ``[N]`` integers, for instance prompt ids.

    Returns:
        ``(mean, std, size)``, each ``[N]``, one entry per sample. ``std`` is the unbiased one (n - 1) and 0 in a
        group of one; ``size`` is int64.

    Example:
        >>> mean, std, size = group_stats(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([7, 2, 7]))
        >>> mean, std, size
        (tensor([2., 5., 2.]), tensor([1.4142, 0.0000, 1.4142]), tensor([2, 1, 2]))
    """
    _, index, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)
    values = rewards.double()
    mean = values.new_zeros(len(counts)).index_add(0, index, values) / counts
    squares = values.new_zeros(len(counts)).index_add(0, index, (values - mean[index]).square())
    std = (squares / (counts - 1).clamp(min=1)).sqrt()
    return mean[index].float(), std[index].float(), counts[index]


def baseline_advantages(
    rewards: Tensor,
    group_ids: Tensor,
    *,
    baseline: Baseline,
    scale: Scale,
    eps: float = 1e-4,
    reduce: Reduce | None = None,
) -> Tensor:
    """Reward minus a baseline, divided by a standard deviation: one advantage per completion.

    ========================  ===============  =========
    algorithm                 baseline         scale
    ========================  ===============  =========
    GRPO (arXiv 2402.03300)   group_mean       group
    Dr. GRPO (2503.20783)     group_mean       none
    RLOO (2402.14740)         leave_one_out    none
    REINFORCE++ (2501.03262)  none, whitened   (see :func:`whiten`)
    ========================  ===============  =========

    Args:
        rewards: ``[N]``, finite, one per completion.
        group_ids: ``[N]`` integers; completions of one prompt share an id and are all on this rank.
        baseline: ``group_mean``, ``leave_one_out`` (mean of the others in the group) or ``none``.
        scale: Divide by the ``group``'s standard deviation, by that of the rewards of the whole ``batch``, or not.
        eps: Added to the standard deviation. The 1e-4 is TRL's.
        reduce: Sums over ranks, for ``scale="batch"``; None on one rank.

    Returns:
        ``[N]``, fp32.

    Raises:
        ValueError: If a group has one sample and a baseline or scale over its group is asked for.

    Example:
        >>> rewards, prompts = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])
        >>> baseline_advantages(rewards, prompts, baseline="leave_one_out", scale="none")
        tensor([ 1., -1., -1.,  1.])
    """
    mean, std, size = group_stats(rewards, group_ids)
    if (baseline != "none" or scale == "group") and (size == 1).any():
        lonely = group_ids[size == 1][0].item()
        raise ValueError(
            f"group {lonely} has one completion, but baseline={baseline!r}, scale={scale!r} compares the completions "
            "of a group: sample at least 2 per prompt"
        )
    advantages = rewards.float()
    if baseline != "none":
        advantages = advantages - mean
    if baseline == "leave_one_out":
        advantages = advantages * (size / (size - 1))  # r - mean of the others = n/(n-1) (r - mean of all)
    if scale == "group":
        return advantages / (std + eps)
    if scale == "batch":
        _, variance = _moments(rewards, torch.ones_like(rewards, dtype=torch.bool), reduce)
        return advantages / (variance.sqrt().float() + eps)
    return advantages


def maxrl_advantages(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """MaxRL's advantage: (reward - group mean) / group mean, and 0 in a group without any success.

    Dividing by the success rate instead of the standard deviation turns the expected-reward gradient into (an
    approximation of) the gradient of the log-likelihood of success, so hard prompts weigh more (Maximum Likelihood
    Reinforcement Learning, arXiv 2602.02710).

    Args:
        rewards: ``[N]``, not negative; the paper's are 0 or 1.
        group_ids: ``[N]`` integers, as in :func:`group_stats`.

    Returns:
        ``[N]``, fp32.

    Raises:
        ValueError: If a reward is negative (its group mean would not be a success rate) or a group has one sample.

    Example:
        >>> maxrl_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0, 1, 1]))
        tensor([ 3., -1., -1., -1.,  0.,  0.])
    """
    if (rewards < 0).any():
        raise ValueError(f"MaxRL needs rewards that are not negative, got {rewards.min().item():g}")
    mean, _, size = group_stats(rewards, group_ids)
    if (size == 1).any():
        lonely = group_ids[size == 1][0].item()
        raise ValueError(f"group {lonely} has one completion, but MaxRL compares the completions of a group")
    return torch.where(mean > 0, (rewards.float() - mean) / mean.where(mean > 0, 1.0), 0.0)


def whiten(
    values: Tensor,
    mask: Tensor,
    *,
    reduce: Reduce | None = None,
    eps: float = 1e-8,
    shift_mean: bool = True,
) -> Tensor:
    """Bring the masked values to unit variance (and zero mean), over all ranks.

    Args:
        values: Any shape.
        mask: Same shape, bool, True where a value counts.
        reduce: Sums over ranks; None on one rank. Every rank must call, also one whose mask is empty.
        eps: Added to the variance.
        shift_mean: Also move the mean to 0; otherwise the mean stays where it was.

    Returns:
        Same shape, fp32, zero where the mask is False. The variance is the unbiased one (n - 1).

    Example:
        >>> whiten(torch.tensor([1.0, 2.0, 3.0, 99.0]), torch.tensor([True, True, True, False]))
        tensor([-1.,  0.,  1.,  0.])
    """
    mean, variance = _moments(values, mask, reduce)
    whitened = (values.double() - mean) * (variance + eps).rsqrt()
    if not shift_mean:
        whitened = whitened + mean
    return whitened.float().masked_fill(~mask, 0.0)


def returns_to_go(token_rewards: Tensor, mask: Tensor) -> Tensor:
    """Sum of the rewards from each token to the end of its row (gamma = 1).

    Args:
        token_rewards: ``[N, T]``, the reward received at each token.
        mask: ``[N, T]`` bool, True on completion tokens; rewards elsewhere are not counted.

    Returns:
        ``[N, T]``, fp32, zero where the mask is False.

    Example:
        >>> rewards = torch.tensor([[9.0, 1.0, 2.0, 3.0]])
        >>> returns_to_go(rewards, torch.tensor([[False, True, True, True]]))
        tensor([[0., 6., 5., 3.]])
    """
    counted = token_rewards.float().masked_fill(~mask, 0.0)
    return counted.flip(-1).cumsum(-1).flip(-1).masked_fill(~mask, 0.0)


def _moments(values: Tensor, mask: Tensor, reduce: Reduce | None) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance of the masked values over all ranks, as fp64 scalars.

    Two passes (mean first, then squared deviations): sum of squares minus square of the sum loses every digit when
    the mean is large against the spread.
    """
    total = reduce if reduce is not None else _identity
    counted = values.double().masked_fill(~mask, 0.0)
    count, value_sum = total(torch.stack([mask.sum().double(), counted.sum()])).unbind()
    mean = value_sum / count.clamp(min=1)
    square_sum = total((counted - mean).square().masked_fill(~mask, 0.0).sum())
    return mean, square_sum / (count - 1).clamp(min=1)


def _identity(value: Tensor) -> Tensor:
    return value
