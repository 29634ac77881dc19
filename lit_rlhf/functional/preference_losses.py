"""Losses on preferences, from sequence log-probs of chosen and rejected completions.

A reward is β (log π - log π_ref) of a completion, up to a term that depends on the prompt alone (arXiv 2305.18290).
Throughout, r_c and r_r are the two log-ratios, h = r_c - r_r. Every loss is in fp32 whatever comes in: bf16 has no
digits left for the difference of two sums of some hundred nats.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

FDivergence = Literal["reverse_kl", "forward_kl", "js", "alpha"]
MAX_EXPONENT = 20.0  # exp() is continued by its tangent from here: at 89 it is inf in fp32, and inf - inf is nan


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

    h = f'(π/π_ref) of the chosen less that of the rejected completion, which for the reverse KL is the difference of
    log-ratios (arXiv 2305.18290, eq. 7; f-divergences: arXiv 2309.16240, table 1). With smoothing it is the
    cross-entropy -(1 - ε) log σ(βh) - ε log σ(-βh), which is least at a finite h: σ(βh) = 1 - ε.

    Args:
        chosen_logps: ``[B]`` under the policy, sums over tokens (means: length-normalised DPO).
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.
        label_smoothing: ε, how often a label is wrong; 0 to below 0.5.
        f_divergence: What holds the policy to the reference.
        alpha: Of the ``alpha`` divergence, above 0 (towards the reverse KL) and below 1 (towards the forward KL);
            TRL's ``f_alpha_divergence_coef`` is 1 - alpha.

    Returns:
        The losses, ln 2 where policy and reference are the same, and the rewards β f', 0 there.

    Raises:
        ValueError: If ``label_smoothing`` or ``alpha`` lies outside its range.

    Example:
        >>> zeros = torch.zeros(1)
        >>> dpo_loss(zeros, zeros, zeros, zeros, beta=0.1).losses
        tensor([0.6931])
        >>> dpo_loss(torch.tensor([-3.0]), torch.tensor([-9.0]), torch.tensor([-4.0]), torch.tensor([-8.0]), beta=0.5)
        PreferenceLoss(losses=tensor([0.3133]), chosen_rewards=tensor([0.5000]), rejected_rewards=tensor([-0.5000]))
    """
    _check_smoothing(label_smoothing)
    chosen = beta * _f_prime(_log_ratio(chosen_logps, ref_chosen_logps), f_divergence, alpha)
    rejected = beta * _f_prime(_log_ratio(rejected_logps, ref_rejected_logps), f_divergence, alpha)
    logits = chosen - rejected
    losses = -(1 - label_smoothing) * logsigmoid(logits) - label_smoothing * logsigmoid(-logits)
    return PreferenceLoss(losses, chosen.detach(), rejected.detach())


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

    (-(1 - ε) log σ(βh) + ε log σ(-βh)) / (1 - 2ε). It has no least value: it falls below 0, by about ε/(1 - 2ε) per
    unit of βh, and never stops pulling a pair apart.

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.
        label_smoothing: ε, below 0.5.

    Returns:
        The losses, ln 2 at the start, and the rewards.

    Raises:
        ValueError: If ``label_smoothing`` is not at least 0 and below 0.5: labels wrong half the time say nothing.

    Example:
        >>> chosen, zeros = torch.tensor([0.0, 9.0]), torch.zeros(2)
        >>> robust_dpo_loss(chosen, zeros, zeros, zeros, beta=1.0, label_smoothing=0.1).losses
        tensor([ 0.6931, -1.1249])
    """
    _check_smoothing(label_smoothing)
    chosen = beta * _log_ratio(chosen_logps, ref_chosen_logps)
    rejected = beta * _log_ratio(rejected_logps, ref_rejected_logps)
    logits = chosen - rejected
    losses = -(1 - label_smoothing) * logsigmoid(logits) + label_smoothing * logsigmoid(-logits)
    return PreferenceLoss(losses / (1 - 2 * label_smoothing), chosen.detach(), rejected.detach())


def ipo_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Identity preference optimisation: (h - 1/(2β))² (arXiv 2310.12036, eq. 17).

    Args:
        chosen_logps: ``[B]`` under the policy; means, as its authors used them and TRL does, or sums, as the paper
            writes it: then h is drawn to the same margin however long the completions are.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: The paper's τ: 1/(2β) is the margin that h is drawn to, from below and from above.

    Returns:
        The losses, (1/(2β))² at the start, whose scale no other loss shares, and the rewards.

    Example:
        >>> zeros = torch.zeros(1)
        >>> ipo_loss(zeros, zeros, zeros, zeros, beta=0.1).losses
        tensor([25.])
    """
    chosen = _log_ratio(chosen_logps, ref_chosen_logps)
    rejected = _log_ratio(rejected_logps, ref_rejected_logps)
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
        The losses, 1 at the start and 0, with no gradient, once βh has reached 1; and the rewards.

    Example:
        >>> chosen, zeros = torch.tensor([0.0, 4.0, 40.0]), torch.zeros(3)
        >>> hinge_loss(chosen, zeros, zeros, zeros, beta=0.1).losses
        tensor([1.0000, 0.6000, 0.0000])
    """
    chosen = beta * _log_ratio(chosen_logps, ref_chosen_logps)
    rejected = beta * _log_ratio(rejected_logps, ref_rejected_logps)
    return PreferenceLoss((1 - (chosen - rejected)).relu(), chosen.detach(), rejected.detach())


def simpo_loss(chosen_means: Tensor, rejected_means: Tensor, *, beta: float, gamma: float) -> PreferenceLoss:
    """Simple preference optimisation: -log σ(β(difference of mean log-probs - γ)), no reference (arXiv 2405.14734).

    Args:
        chosen_means: ``[B]`` log-probs per token under the policy.
        rejected_means: ``[B]``.
        beta: Scale of the rewards.
        gamma: Target margin of the means, in nats per token: the paper's γ/β. TRL's ``simpo_gamma`` is the paper's γ,
            which is ``beta * gamma`` here.

    Returns:
        The losses, softplus(βγ) where both means are equal, and the rewards β × mean.

    Example:
        >>> simpo_loss(torch.zeros(1), torch.zeros(1), beta=2.0, gamma=0.5).losses
        tensor([1.3133])
    """
    chosen, rejected = beta * chosen_means.float(), beta * rejected_means.float()
    return PreferenceLoss(-logsigmoid(chosen - rejected - beta * gamma), chosen.detach(), rejected.detach())


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
        The losses, ln 2 where both log-probs are equal, and the rewards β log π. The paper adds the negative
        log-likelihood of the chosen completion; here that is the caller's.

    Raises:
        ValueError: If ``label_smoothing`` is not at least 0 and below 0.5.

    Example:
        >>> cpo_loss(torch.tensor([-20.0]), torch.tensor([-30.0]), beta=0.1).losses
        tensor([0.3133])
    """
    zeros = torch.zeros_like(chosen_logps)
    return dpo_loss(chosen_logps, rejected_logps, zeros, zeros, beta=beta, label_smoothing=label_smoothing)


def log_odds_ratio(chosen_means: Tensor, rejected_means: Tensor) -> Tensor:
    """Log of the ratio of odds p/(1 - p), p = exp(mean log-prob) (arXiv 2403.07691, eqs. 3 to 5).

    Args:
        chosen_means: ``[B]`` log-probs per token; clamped to -1e-6 at most, since the odds of p = 1 are infinite.
        rejected_means: ``[B]``.

    Returns:
        ``[B]``, fp32.

    Example:
        >>> log_odds_ratio(torch.tensor([0.75, 1.0]).log(), torch.tensor([0.5, 0.5]).log())  # log 3, and the clamp
        tensor([ 1.0986, 13.8155])
    """
    return _log_odds(chosen_means) - _log_odds(rejected_means)


def orpo_odds_loss(chosen_means: Tensor, rejected_means: Tensor, *, beta: float) -> PreferenceLoss:
    """ORPO's preference term: -β log σ(log odds ratio) (arXiv 2403.07691, eqs. 6 and 7).

    Args:
        chosen_means: ``[B]`` log-probs per token. Of sums, p underflows for any long completion, the log odds ratio is
            their difference, hundreds of nats, and the term is 0 or outweighs the likelihood a hundredfold.
        rejected_means: ``[B]``.
        beta: The paper's λ, the weight against the likelihood of the chosen completion, which the caller adds.

    Returns:
        The losses, β ln 2 where both means are equal, and the rewards β × mean.

    Example:
        >>> orpo_odds_loss(torch.tensor([0.75]).log(), torch.tensor([0.5]).log(), beta=1.0).losses  # odds 3 : 1
        tensor([0.2877])
    """
    losses = -beta * logsigmoid(log_odds_ratio(chosen_means, rejected_means))
    return PreferenceLoss(losses, (beta * chosen_means.float()).detach(), (beta * rejected_means.float()).detach())


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

    λ (1 - σ(±β(r - z))), + and λ_D for a desirable completion, - and λ_U for an undesirable one; r is its log-ratio and
    z the reference point.

    Args:
        logps: ``[B]`` sums under the policy.
        ref_logps: ``[B]`` under the reference.
        good_mask: ``[B]`` bool, True for a desirable completion.
        kl: Scalar, z: the mean log-ratio of mismatched pairs, each prompt with another prompt's completion. No gradient
            flows through it, and what is below 0 counts as 0.
        beta: Scale of the rewards.
        desirable_weight: λ_D. Keep λ_D × desirable rows between 1 and 4/3 times λ_U × undesirable rows.
        undesirable_weight: λ_U.

    Returns:
        ``[B]``; half the weight at the start.

    Example:
        >>> good_mask, zeros = torch.tensor([True, False]), torch.zeros(2)
        >>> kto_loss(zeros, zeros, good_mask, kl=torch.tensor(2.0), beta=0.5)  # both below what the KL makes usual
        tensor([0.7311, 0.2689])
    """
    reference_point = kl.detach().float().clamp(min=0)
    distance = torch.where(good_mask, 1.0, -1.0) * (_log_ratio(logps, ref_logps) - reference_point)
    weight = torch.where(good_mask, desirable_weight, undesirable_weight)
    return weight * torch.sigmoid(-beta * distance)


def apo_zero_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Anchored preference optimisation for good chosen completions: 1 - σ(βr_c) + σ(βr_r) (arXiv 2408.06266, eq. 7).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.

    Returns:
        The losses, 1 at the start (the paper writes them without the constant 1: 0), and the rewards.

    Example:
        >>> chosen, rejected, zeros = torch.tensor([0.0, 2.0]), torch.tensor([0.0, -2.0]), torch.zeros(2)
        >>> apo_zero_loss(chosen, rejected, zeros, zeros, beta=0.5).losses
        tensor([1.0000, 0.5379])
    """
    chosen = beta * _log_ratio(chosen_logps, ref_chosen_logps)
    rejected = beta * _log_ratio(rejected_logps, ref_rejected_logps)
    losses = torch.sigmoid(-chosen) + torch.sigmoid(rejected)
    return PreferenceLoss(losses, chosen.detach(), rejected.detach())


def apo_down_loss(
    chosen_logps: Tensor, rejected_logps: Tensor, ref_chosen_logps: Tensor, ref_rejected_logps: Tensor, *, beta: float
) -> PreferenceLoss:
    """Anchored preference optimisation for poor chosen completions: σ(βr_c) + 1 - σ(βh) (arXiv 2408.06266, eq. 8).

    Args:
        chosen_logps: ``[B]`` under the policy.
        rejected_logps: ``[B]``.
        ref_chosen_logps: ``[B]`` under the reference.
        ref_rejected_logps: ``[B]``.
        beta: Scale of the rewards.

    Returns:
        The losses, 1 at the start (the paper writes them without the constant 1: 0), and the rewards.

    Example:
        >>> chosen, rejected, zeros = torch.tensor([0.0, -2.0]), torch.tensor([0.0, -6.0]), torch.zeros(2)
        >>> apo_down_loss(chosen, rejected, zeros, zeros, beta=0.5).losses
        tensor([1.0000, 0.3881])
    """
    chosen = beta * _log_ratio(chosen_logps, ref_chosen_logps)
    rejected = beta * _log_ratio(rejected_logps, ref_rejected_logps)
    losses = torch.sigmoid(chosen) + torch.sigmoid(rejected - chosen)
    return PreferenceLoss(losses, chosen.detach(), rejected.detach())


def _log_ratio(logps: Tensor, ref_logps: Tensor) -> Tensor:
    return logps.float() - ref_logps.float()


def _check_smoothing(label_smoothing: float) -> None:
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be at least 0 and below 0.5, got {label_smoothing}")


def _f_prime(log_ratio: Tensor, divergence: FDivergence, alpha: float) -> Tensor:
    """Return f'(u), u = π/π_ref, with the constant that makes it 0 at u = 1."""
    if divergence == "reverse_kl":
        return log_ratio
    if divergence == "js":
        return logsigmoid(log_ratio) + math.log(2)
    if divergence == "alpha" and not 0 < alpha < 1:
        raise ValueError(f"alpha must be above 0 and below 1, got {alpha}")
    power = 1.0 if divergence == "forward_kl" else alpha
    exponent = -power * log_ratio  # (1 - u^-α) / α, which for α = 1 is the forward KL's
    tangent = math.exp(MAX_EXPONENT) * (exponent - MAX_EXPONENT).relu()
    return -(exponent.clamp(max=MAX_EXPONENT).expm1() + tangent) / power


def _log_odds(means: Tensor) -> Tensor:
    """Return log(p / (1 - p)), without the cancellation of 1 - p near p = 1."""
    means = means.float().clamp(max=-1e-6)
    return means - torch.log(-torch.expm1(means))  # log1p(-exp) for small p: a gain below the rounding of the sum
