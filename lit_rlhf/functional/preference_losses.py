"""Losses on preferences, from sequence log-probs of chosen and rejected completions.

A reward is β (log π - log π_ref) of a completion, up to a term that depends on the prompt alone (arXiv 2305.18290).
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

FDivergence = Literal["reverse_kl", "forward_kl", "js", "alpha"]
MAX_LOG_RATIO = 20.0  # beyond it exp() of a log-ratio says nothing but "far"


class PreferenceLoss(NamedTuple):
    """What a loss on B pairs returns."""

    losses: Tensor
    """``[B]``, to be minimised."""
    chosen_rewards: Tensor
    """``[B]``, detached."""
    rejected_rewards: Tensor
    """``[B]``, detached."""


def dpo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    ref_chosen_logps: Tensor,
    ref_rejected_logps: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
    f_divergence: FDivergence = "reverse_kl",
    alpha: float = 0.5,
) -> PreferenceLoss:
    """Direct preference optimisation: -log σ(βh), with smoothed labels if asked (conservative DPO).

    h is the difference of the chosen and the rejected completion's f'(π/π_ref); for the reverse KL that is the
    difference of log-ratios (arXiv 2305.18290, eq. 7; f-divergences arXiv 2309.16240, table 1).

    Args:
        chosen_logps: ``[B]`` under the policy, sums over tokens (means: length-normalised DPO).
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.
        label_smoothing: ε, how often a label is wrong; 0 to below 0.5.
        f_divergence: What holds the policy to the reference.
        alpha: Of the ``alpha`` divergence, above 0 and below 1.

    Returns:
        The losses, ln 2 where policy and reference are the same, and the rewards.

    Example:
        >>> zeros = torch.zeros(1)
        >>> dpo_loss(zeros, zeros, zeros, zeros, beta=0.1).losses
        tensor([0.6931])
    """
    chosen = _f_prime(chosen_logps - ref_chosen_logps, f_divergence, alpha)
    rejected = _f_prime(rejected_logps - ref_rejected_logps, f_divergence, alpha)
    logits = beta * (chosen - rejected)
    losses = -(1 - label_smoothing) * logsigmoid(logits) - label_smoothing * logsigmoid(-logits)
    return PreferenceLoss(losses, (beta * chosen).detach(), (beta * rejected).detach())


def robust_dpo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    ref_chosen_logps: Tensor,
    ref_rejected_logps: Tensor,
    *,
    beta: float,
    label_smoothing: float,
) -> PreferenceLoss:
    """DPO whose expectation under labels flipped with probability ε is DPO on clean labels (arXiv 2403.00409, eq. 12).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.
        label_smoothing: ε, below 0.5.

    Returns:
        The losses, ln 2 at the start, and the rewards.
    """
    chosen, rejected = beta * (chosen_logps - ref_chosen_logps), beta * (rejected_logps - ref_rejected_logps)
    logits = chosen - rejected
    losses = -(1 - label_smoothing) * logsigmoid(logits) + label_smoothing * logsigmoid(-logits)
    return PreferenceLoss(losses / (1 - 2 * label_smoothing), chosen.detach(), rejected.detach())


def ipo_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Identity preference optimisation: (h - 1/(2β))² (arXiv 2310.12036, eq. 17).

    Args:
        chosen_logps: ``[B]`` under the policy; sums as in the paper, or means as TRL takes them.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: 1/(2β) is the margin that h is drawn to.

    Returns:
        The losses, (1/(2β))² at the start, and the rewards.

    Example:
        >>> zeros = torch.zeros(1)
        >>> ipo_loss(zeros, zeros, zeros, zeros, beta=0.1).losses
        tensor([25.])
    """
    chosen, rejected = chosen_logps - ref_chosen_logps, rejected_logps - ref_rejected_logps
    losses = (chosen - rejected - 1 / (2 * beta)).square()
    return PreferenceLoss(losses, (beta * chosen).detach(), (beta * rejected).detach())


def hinge_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """SLiC's margin loss on DPO's logit: max(0, 1 - βh) (arXiv 2305.10425; 2309.06657).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.

    Returns:
        The losses, 1 at the start, and the rewards.
    """
    chosen, rejected = beta * (chosen_logps - ref_chosen_logps), beta * (rejected_logps - ref_rejected_logps)
    return PreferenceLoss((1 - (chosen - rejected)).relu(), chosen.detach(), rejected.detach())


def simpo_loss(chosen_means: Tensor, rejected_means: Tensor, *, beta: float, gamma: float) -> PreferenceLoss:
    """Simple preference optimisation: -log σ(β(difference of mean log-probs - γ)), no reference (arXiv 2405.14734).

    Args:
        chosen_means: ``[B]`` log-probs per token under the policy.
        rejected_means: ``[B]``.
        beta: Scale of the rewards.
        gamma: Target margin of the means: the paper's γ/β, and what TRL calls ``simpo_gamma / beta``.

    Returns:
        The losses and the rewards.

    Example:
        >>> simpo_loss(torch.zeros(1), torch.zeros(1), beta=2.0, gamma=0.5).losses
        tensor([1.3133])
    """
    losses = -logsigmoid(beta * (chosen_means - rejected_means - gamma))
    return PreferenceLoss(losses, (beta * chosen_means).detach(), (beta * rejected_means).detach())


def cpo_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, *, beta: float, label_smoothing: float = 0.0
) -> PreferenceLoss:
    """Contrastive preference optimisation's preference term: DPO with a uniform reference (arXiv 2401.08417, eq. 3).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        beta: Scale of the rewards.
        label_smoothing: ε, how often a label is wrong.

    Returns:
        The losses and the rewards; the likelihood of the chosen completion is added by the caller.
    """
    zeros = torch.zeros_like(chosen_logps)
    return dpo_loss(chosen_logps, rejected_logps, zeros, zeros, beta=beta, label_smoothing=label_smoothing)


def log_odds_ratio(chosen_means: Tensor, rejected_means: Tensor) -> Tensor:
    """Log of the ratio of odds p/(1 - p), p = exp(mean log-prob).

    Args:
        chosen_means: ``[B]`` log-probs per token; clamped below 0, where the odds are infinite.
        rejected_means: ``[B]``.

    Returns:
        ``[B]``, fp32.
    """
    chosen, rejected = chosen_means.float().clamp(max=-1e-6), rejected_means.float().clamp(max=-1e-6)
    return (chosen - rejected) - (_log1mexp(chosen) - _log1mexp(rejected))


def orpo_odds_loss(chosen_means: Tensor, rejected_means: Tensor, *, beta: float) -> PreferenceLoss:
    """ORPO's preference term: -β log σ(log odds ratio) (arXiv 2403.07691, eq. 6).

    Args:
        chosen_means: ``[B]`` log-probs per token: sums would make the odds of any long completion vanish.
        rejected_means: ``[B]``.
        beta: The paper's λ, the weight against the likelihood, which the caller adds.

    Returns:
        The losses and the rewards.
    """
    losses = -beta * logsigmoid(log_odds_ratio(chosen_means, rejected_means))
    return PreferenceLoss(losses, (beta * chosen_means).detach(), (beta * rejected_means).detach())


def kto_loss(
    logps: Tensor,
    ref_logps: Tensor,
    good_mask: Tensor,
    kl: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """Kahneman-Tversky optimisation on single judged completions (arXiv 2402.01306, eq. 7).

    Args:
        logps: ``[B]`` sums under the policy.
        ref_logps: ``[B]`` under the reference.
        good_mask: ``[B]`` bool, True for a desirable completion.
        kl: Scalar, the reference point: the KL estimated from mismatched prompts and completions. No gradient flows
            through it, and what is below 0 counts as 0.
        beta: Scale of the rewards.
        desirable_weight: λ_D.
        undesirable_weight: λ_U.

    Returns:
        ``[B]``; half the weight at the start.
    """
    reference_point = kl.detach().clamp(min=0)
    distance = torch.where(good_mask, 1.0, -1.0) * (logps - ref_logps - reference_point)
    weight = torch.where(good_mask, desirable_weight, undesirable_weight)
    return weight * (1 - torch.sigmoid(beta * distance))


def apo_zero_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Anchored preference optimisation for good chosen completions: 1 - σ(βr_c) + σ(βr_r) (arXiv 2408.06266).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.

    Returns:
        The losses, 1 at the start (the paper writes it without the constant, 0), and the rewards.
    """
    chosen, rejected = beta * (chosen_logps - ref_chosen_logps), beta * (rejected_logps - ref_rejected_logps)
    losses = 1 - torch.sigmoid(chosen) + torch.sigmoid(rejected)
    return PreferenceLoss(losses, chosen.detach(), rejected.detach())


def apo_down_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Anchored preference optimisation for poor chosen completions: σ(βr_c) + 1 - σ(βh) (arXiv 2408.06266).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.

    Returns:
        The losses, 1 at the start, and the rewards.
    """
    chosen, rejected = beta * (chosen_logps - ref_chosen_logps), beta * (rejected_logps - ref_rejected_logps)
    losses = torch.sigmoid(chosen) + 1 - torch.sigmoid(chosen - rejected)
    return PreferenceLoss(losses, chosen.detach(), rejected.detach())


def _f_prime(log_ratio: Tensor, divergence: FDivergence, alpha: float) -> Tensor:
    """Return f'(u), u = π/π_ref, up to a constant that cancels between chosen and rejected."""
    if divergence == "reverse_kl":
        return log_ratio
    bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if divergence == "forward_kl":
        return -torch.exp(-bounded)
    if divergence == "js":
        return bounded - softplus(bounded)
    return (1 - torch.exp(-alpha * bounded)) / alpha


def _log1mexp(values: Tensor) -> Tensor:
    """Return log(1 - exp(x)) for x < 0 without cancellation (Mächler 2012)."""
    near_zero = values > -0.6931
    return torch.where(
        near_zero,
        torch.log(-torch.expm1(values.where(near_zero, -0.5))),
        torch.log1p(-torch.exp(values.where(~near_zero, -1.0))),
    )
