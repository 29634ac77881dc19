"""The callbacks' one copy of log-prob shifting and KL estimators, for modules that know nothing of ours."""

from typing import Literal

import torch.nn.functional as F  # noqa: N812  (the name every torch user reads)
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]


def token_logps(logits: Tensor, input_ids: Tensor) -> Tensor:
    """Log-probability of every token given the tokens before it.

    Args:
        logits: ``[B, T, V]``, where ``logits[:, t]`` predicts the token at ``t + 1``. Any float type.
        input_ids: ``[B, T]`` token ids.

    Returns:
        ``[B, T]`` in nats, fp32, aligned to the token scored; column 0, with nothing before it, is zero.

    Example:
        >>> import torch
        >>> token_logps(torch.tensor([[[0.0, 0.0], [9.0, 9.0]]]), torch.tensor([[0, 1]]))
        tensor([[ 0.0000, -0.6931]])
    """
    predictions = logits[:, :-1].float()  # [B, T-1, V]
    chosen = predictions.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return F.pad(chosen - predictions.logsumexp(-1), (1, 0))


def kl_estimate(logps: Tensor, ref_logps: Tensor, estimator: KLEstimator, clamp: float = 20.0) -> Tensor:
    """Estimate KL(policy || reference) at each token, for tokens sampled from the policy.

    With d = log π − log π_ref, clamped: k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d (Schulman, "Approximating KL
    Divergence", 2020, whose ratio is π_ref / π).

    Args:
        logps: Any shape, log-probabilities under the policy, in nats.
        ref_logps: Same shape, under the reference.
        estimator: Which one.
        clamp: Bound on d, in nats.

    Returns:
        Same shape, nats per token, fp32.

    Example:
        >>> import torch
        >>> kl_estimate(torch.tensor([-1.0]), torch.tensor([-2.0]), "k3")
        tensor([0.3679])
    """
    log_ratio = (logps.float() - ref_logps.float()).clamp(-clamp, clamp)
    if estimator == "k1":
        return log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    return (-log_ratio).expm1() + log_ratio


def scored_mask(tokens: dict[str, Tensor]) -> Tensor | None:
    """Return which tokens of a batch count, ``[B, T]`` bool, or None if the batch does not say.

    Args:
        tokens: ``completion_mask``, or ``labels`` with -100 where a token does not count (``labels[b, t]`` is the token
            at ``t``, not the next one).
    """
    if "completion_mask" in tokens:
        return tokens["completion_mask"].bool()
    if "labels" in tokens:
        return tokens["labels"] != -100
    return None
