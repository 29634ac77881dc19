"""Policy-gradient losses per token; averaging over tokens is :func:`lit_rlhf.functional.aggregate`'s business.

Throughout, rho = exp(logps - old_logps) is how much likelier the token has become since it was sampled, and A its
advantage. Every loss is to be minimised, in fp32 whatever comes in.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# exp(20) is far outside any clip range, and beyond 88 exp overflows in fp32: the clipped branch then has gradient
# 0 * inf = nan. A log-ratio out here is a bug or a broken sampler, and gets no gradient.
MAX_LOG_RATIO = 20.0


class PolicyLoss(NamedTuple):
    """A per-token loss and where clipping acted. All three are ``[B, T]``."""

    values: Tensor
    """To be minimised."""
    low_clipped: Tensor
    """bool: A < 0 and the ratio already below its lower bound."""
    high_clipped: Tensor
    """bool: A > 0 and the ratio already above its upper bound."""


def reinforce_loss(logps: Tensor, advantages: Tensor) -> PolicyLoss:
    """Policy gradient without a ratio: -A log pi (Williams, 1992; RLOO: arXiv 2402.14740).

    Args:
        logps: ``[B, T]`` log-probabilities under the policy being trained.
        advantages: ``[B, T]`` or ``[B, 1]``.

    Returns:
        The loss; nothing is ever clipped.

    Example:
        >>> reinforce_loss(torch.tensor([[-1.0, -2.0]]), torch.tensor([[0.5]])).values
        tensor([[0.5000, 1.0000]])
    """
    values = -advantages.float() * logps.float()
    return _unclipped(values)


def ppo_clip_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    clip_dual: float | None = None,
) -> PolicyLoss:
    """PPO's clipped surrogate, -min(rho A, clip(rho, 1 - low, 1 + high) A), per token.

    Symmetric clipping is PPO (arXiv 1707.06347, eq. 7) and GRPO (2402.03300), ``clip_high > clip_low`` is DAPO's
    clip-higher (2503.14476). ``clip_dual`` = c adds dual clip (1912.09729; TRL's ``delta``): where A < 0 the loss is at
    most c |A|, so one token that became much likelier cannot dominate the step.

    Args:
        logps: ``[B, T]`` under the policy being trained.
        old_logps: ``[B, T]`` under the policy that sampled, no gradient.
        advantages: ``[B, T]`` or ``[B, 1]``.
        clip_low: The ratio's lower bound is 1 - clip_low.
        clip_high: The ratio's upper bound is 1 + clip_high.
        clip_dual: c > 1, usually 3; None turns it off.

    Returns:
        The loss and where the clip blocked its gradient (tokens stopped by the dual clip are not counted).

    Raises:
        ValueError: If ``clip_dual`` is not above 1: it would cut the ordinary, unclipped update.

    Example:
        >>> old_logps, logps = torch.zeros(1, 2), torch.tensor([[1.5, 0.5]]).log()
        >>> ppo_clip_loss(logps, old_logps, torch.ones(1, 1), clip_low=0.2, clip_high=0.2)
        PolicyLoss(values=tensor([[-1.2000, -0.5000]]), low_clipped=tensor([[False, False]]), \
high_clipped=tensor([[ True, False]]))
    """
    if clip_dual is not None and clip_dual <= 1:
        raise ValueError(f"clip_dual must be above 1, got {clip_dual}")
    ratio = _log_ratio(logps, old_logps).exp()
    return _clipped_surrogate(ratio, advantages.float(), clip_low, clip_high, clip_dual)


def gspo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """The clipped surrogate with one ratio per sequence (GSPO, arXiv 2507.18071).

    The ratio is the exp of the mean log-ratio over the completion, the same at each of its tokens. It moves far less
    than a token's: useful clip ranges are some 3e-4, a PPO-sized 0.2 never acts.

    Args:
        logps: ``[B, T]`` under the policy being trained.
        old_logps: ``[B, T]`` under the policy that sampled, no gradient.
        advantages: ``[B, T]`` or ``[B, 1]``.
        mask: ``[B, T]`` bool, True on completion tokens.
        clip_low: The ratio's lower bound is 1 - clip_low.
        clip_high: The ratio's upper bound is 1 + clip_high.

    Returns:
        The loss. Aggregate it with ``seq_mean_token_mean`` for the paper's objective.

    Example:
        >>> logps, mask = torch.tensor([[0.3, 0.1, 7.0]]), torch.tensor([[True, True, False]])
        >>> gspo_loss(logps, torch.zeros(1, 3), torch.ones(1, 1), mask, clip_low=0.2, clip_high=0.5).values
        tensor([[-1.2214, -1.2214, -1.2214]])
    """
    log_ratio = _log_ratio(logps, old_logps).masked_fill(~mask, 0.0)
    mean_log_ratio = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    ratio = mean_log_ratio.exp().expand_as(logps)
    return _clipped_surrogate(ratio, advantages.float(), clip_low, clip_high, None)


def cispo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    *,
    clip_low: float | None,
    clip_high: float,
) -> PolicyLoss:
    """Policy gradient weighted by a clipped, detached ratio, -sg(clip(rho)) A log pi (CISPO, arXiv 2506.13585).

    Unlike PPO's clip no token ever loses its gradient; the cap only bounds its weight.

    Args:
        logps: ``[B, T]`` under the policy being trained.
        old_logps: ``[B, T]`` under the policy that sampled.
        advantages: ``[B, T]`` or ``[B, 1]``.
        clip_low: The weight's lower bound is 1 - clip_low; None for no bound (the paper's setting).
        clip_high: The weight's upper bound is 1 + clip_high. (TRL's ``epsilon_high`` is the bound itself for CISPO:
            its 5.0 is 4.0 here.)

    Returns:
        The loss, and where the weight was bounded (counted as for PPO: low where A < 0, high where A > 0).

    Example:
        >>> logps = torch.tensor([[2.0]]).log()
        >>> cispo_loss(logps, torch.zeros(1, 1), torch.ones(1, 1), clip_low=None, clip_high=0.5).values
        tensor([[-1.0397]])
    """
    advantages = advantages.float()
    ratio = _log_ratio(logps, old_logps).exp().detach()
    lower = 0.0 if clip_low is None else 1 - clip_low
    values = -ratio.clamp(lower, 1 + clip_high) * advantages * logps.float()
    return PolicyLoss(values, (advantages < 0) & (ratio < lower), (advantages > 0) & (ratio > 1 + clip_high))


def sapo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
) -> PolicyLoss:
    """A soft gate instead of a clip: -A sigmoid(tau (rho - 1)) 4 / tau (SAPO, arXiv 2511.20347).

    At rho = 1 its gradient is that of the unclipped surrogate; away from 1 it fades, faster with a larger tau.

    Args:
        logps: ``[B, T]`` under the policy being trained.
        old_logps: ``[B, T]`` under the policy that sampled, no gradient.
        advantages: ``[B, T]`` or ``[B, 1]``.
        tau_pos: tau where A > 0.
        tau_neg: tau where A <= 0; the paper makes it the larger one, because pushing a token down raises many others.

    Returns:
        The loss; nothing is ever clipped.

    Example:
        >>> sapo_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1)).values
        tensor([[-2.]])
    """
    advantages = advantages.float()
    ratio = _log_ratio(logps, old_logps).exp()
    tau = torch.where(advantages > 0, tau_pos, tau_neg)
    return _unclipped(-advantages * torch.sigmoid(tau * (ratio - 1)) * (4 / tau))


def tis_weights(learner_logps: Tensor, sampler_logps: Tensor, *, cap: float = 2.0, clamp: float = 10.0) -> Tensor:
    """Truncated importance weights for tokens another engine sampled: min(exp(learner - sampler), cap).

    Multiply the per-token loss by them. They correct for the sampler's numerics, not for the policy's updates: with a
    clipped loss take the learner's *old* log-probs (Yao et al., "Your efficient RL framework secretly brings you
    off-policy RL training", 2025).

    Args:
        learner_logps: ``[B, T]``, of the sampled tokens, recomputed by the learner.
        sampler_logps: ``[B, T]``, as the sampler reported them.
        cap: Largest weight.
        clamp: Bound on the difference, in nats, before exp.

    Returns:
        ``[B, T]``, fp32, detached.

    Example:
        >>> tis_weights(torch.tensor([0.0, 1.0]), torch.tensor([0.6931, 0.0]))
        tensor([0.5000, 2.0000])
    """
    log_ratio = (learner_logps.detach().float() - sampler_logps.detach().float()).clamp(-clamp, clamp)
    return log_ratio.exp().clamp(max=cap)


def _log_ratio(logps: Tensor, old_logps: Tensor) -> Tensor:
    return (logps.float() - old_logps.float()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _clipped_surrogate(
    ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, clip_dual: float | None
) -> PolicyLoss:
    lower, upper = 1 - clip_low, 1 + clip_high
    values = -torch.minimum(ratio * advantages, ratio.clamp(lower, upper) * advantages)
    if clip_dual is not None:
        values = torch.where(advantages < 0, torch.minimum(values, -clip_dual * advantages), values)
    return PolicyLoss(values, (advantages < 0) & (ratio < lower), (advantages > 0) & (ratio > upper))


def _unclipped(values: Tensor) -> PolicyLoss:
    nowhere = torch.zeros_like(values, dtype=torch.bool)
    return PolicyLoss(values, nowhere, nowhere)
