"""Per-token estimates of the reverse KL divergence from a reference, on tokens sampled from the policy."""

from typing import Literal

from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(
    logps: Tensor,
    ref_logps: Tensor,
    estimator: KLEstimator = "k3",
    straight_through: bool = False,
    clamp: float = 20.0,
) -> Tensor:
    r"""Estimate KL(policy || reference) at each token, for tokens sampled from the policy.

    With d = log pi - log pi_ref (Schulman, "Approximating KL Divergence", 2020, where his ratio is pi_ref / pi):

    =========  ==================  ==========================  ================================================
    estimator  per token           value, averaged over pi     gradient as a loss, averaged over pi
    =========  ==================  ==========================  ================================================
    k1         d                   exact, high variance        zero: as a loss it does nothing
    k2         d**2 / 2            biased, small near d = 0    exact reverse KL
    k3         exp(-d) - 1 + d     exact, never negative       that of the *forward* KL, KL(reference || policy)
    =========  ==================  ==========================  ================================================

    So no plain estimator is right in both; ``straight_through`` keeps the value of the one chosen and takes the
    gradient of k2, which is the exact gradient of the reverse KL. In a reward only the value matters: use k1 there.

    Args:
        logps: Any shape, log-probabilities under the policy, in nats.
        ref_logps: Same shape, log-probabilities under the reference.
        estimator: Whose value is returned.
        straight_through: Use the gradient of k2 whatever the estimator.
        clamp: Bound on d, in nats. Beyond it the plain estimators are flat (no gradient), because exp(-d) explodes;
            the straight-through gradient goes on pulling, with strength ``clamp``.

    Returns:
        Same shape, nats per token, fp32.

    Raises:
        ValueError: If the estimator is unknown.

    Example:
        >>> import torch
        >>> kl_estimate(torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -1.0]), "k1")
        tensor([ 1., -1.])
        >>> kl_estimate(torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -1.0]), "k3")
        tensor([0.3679, 0.7183])
    """
    log_ratio = (logps.float() - ref_logps.float()).clamp(-clamp, clamp)
    if estimator == "k1":
        value = log_ratio
    elif estimator == "k2":
        value = log_ratio.square() / 2
    elif estimator == "k3":
        value = (-log_ratio).expm1() + log_ratio  # expm1: near d = 0 exp(-d) - 1 has no correct digit in fp32
    else:
        raise ValueError(f"unknown KL estimator {estimator!r}: use 'k1', 'k2' or 'k3'")
    if not straight_through:
        return value
    gradient_only = logps.float() - logps.float().detach()  # zero in value, d logps in gradient
    return value.detach() + log_ratio.detach() * gradient_only
