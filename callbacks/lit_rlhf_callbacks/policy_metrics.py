"""What a micro-batch's tokens say about the policy, as sums that add up over micro-batches and ranks."""

import torch
from torch import Tensor

from lit_rlhf_callbacks.completion_metrics import Sums, completion_sums, correlation
from lit_rlhf_callbacks.scoring import kl_estimate, scored_mask

# The layout is fixed, so that every rank reduces the same vector whatever its own micro-batches held.
MEANS = (
    "kl/k1",
    "kl/k2",
    "kl/k3",
    "ratio/mean",
    "policy/approxkl_avg",
    "sampling/sampling_logp_difference/mean",
    "logps/mean",
    "completions/mean_length",
    "completions/empty_ratio",
    "completions/repetition",
    "advantages/frac_nonzero",
    "advantages/mean",
    "update/share_changed",
    "update/relative_norm",
    "drift/forward_kl",
)
PARTS = (  # of what is neither a mean nor an extreme; `unpack` puts them together
    "_advantages/square",
    "_reward_length/both",
    "_reward_length/rewards",
    "_reward_length/lengths",
)
MAXIMA = ("ratio/max", "sampling/sampling_logp_difference/max", "completions/max_length", "completions/min_length")
NEGATED = "completions/min_length"  # a minimum is the negative of a maximum of negatives
_SUMMED = (*MEANS, *PARTS)

Extremes = dict[str, Tensor]


def token_metrics(tokens: dict[str, Tensor]) -> tuple[Sums, Extremes]:
    """Measure one micro-batch, as far as its tensors go.

    Args:
        tokens: What ``training_step`` returns as ``tokens``; every per-token tensor is ``[B, T]`` and aligned to the
            token it scores. Any of them may be missing; a micro-batch without rows has none.

    Returns:
        Sums and counts of the means, and the extremes, by metric name.
    """
    sums: Sums = {}
    extremes: Extremes = {}
    mask = scored_mask(tokens)
    if mask is None or not mask.any():
        return sums, extremes
    sums |= completion_sums(tokens, mask)
    lengths = mask.sum(-1)
    extremes["completions/max_length"] = lengths.max()
    extremes["completions/min_length"] = -lengths[lengths > 0].min()
    if "logps" in tokens:
        scored = mask.clone()
        scored[:, 0] = False  # the first token has nothing before it, hence no log-prob
        _add_policy_metrics(tokens, scored, sums, extremes)
    return sums, extremes


def _add_policy_metrics(tokens: dict[str, Tensor], mask: Tensor, sums: Sums, extremes: Extremes) -> None:
    logps, count = tokens["logps"].float()[mask], mask.sum()
    sums["logps/mean"] = logps.sum(), count
    if "ref_logps" in tokens:
        reference = tokens["ref_logps"][mask]
        sums["kl/k1"] = kl_estimate(logps, reference, "k1").sum(), count
        sums["kl/k2"] = kl_estimate(logps, reference, "k2").sum(), count
        sums["kl/k3"] = kl_estimate(logps, reference, "k3").sum(), count
    if "old_logps" in tokens:
        log_ratio = logps - tokens["old_logps"].float()[mask]
        sums["ratio/mean"] = log_ratio.exp().sum(), count
        sums["policy/approxkl_avg"] = log_ratio.square().sum() / 2, count
        extremes["ratio/max"] = log_ratio.max().exp()
    if "sampler_logps" in tokens:
        learner = tokens.get("old_logps", tokens["logps"]).float()[mask]
        difference = (learner - tokens["sampler_logps"].float()[mask]).abs()
        sums["sampling/sampling_logp_difference/mean"] = difference.sum(), count
        extremes["sampling/sampling_logp_difference/max"] = difference.max()


def pack(sums: Sums, extremes: Extremes, device: torch.device) -> Tensor:
    """Lay a micro-batch's metrics out in one vector: sums, counts, maxima."""
    dtype = torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
    nothing = torch.zeros((), device=device, dtype=dtype)
    pairs = [sums.get(name, (nothing, nothing)) for name in _SUMMED]
    tops = [extremes.get(name, nothing - torch.inf) for name in MAXIMA]
    numbers = [*(value for value, _ in pairs), *(count for _, count in pairs), *tops]
    return torch.stack([torch.as_tensor(number).to(device, dtype) for number in numbers])


def combine(vectors: Tensor) -> Tensor:
    """Join packed vectors of several micro-batches or ranks, ``[N, L] -> [L]``."""
    num_sums = 2 * len(_SUMMED)
    return torch.cat([vectors[:, :num_sums].sum(0), vectors[:, num_sums:].amax(0)])


def unpack(vector: Tensor) -> dict[str, float]:
    """Divide sums by counts; what nobody measured is left out. ``kl`` is TRL's name for k3."""
    values, num = vector.tolist(), len(_SUMMED)
    totals, counts, tops = values[:num], values[num : 2 * num], values[2 * num :]
    metrics = {name: total / count for name, total, count in zip(_SUMMED, totals, counts, strict=True) if count}
    parts = {name: metrics.pop(name) for name in PARTS if name in metrics}
    metrics |= {name: top for name, top in zip(MAXIMA, tops, strict=True) if top != -torch.inf}
    if NEGATED in metrics:
        metrics[NEGATED] = -metrics[NEGATED]
    if "kl/k3" in metrics:
        metrics["kl"] = metrics["kl/k3"]
    if "update/relative_norm" in metrics:  # summed as squares
        metrics["update/relative_norm"] **= 0.5
    if "_advantages/square" in parts:
        metrics["advantages/std"] = max(0.0, parts["_advantages/square"] - metrics["advantages/mean"] ** 2) ** 0.5
    if "_reward_length/both" in parts and (strength := correlation(parts)) is not None:
        metrics["rewards/length_correlation"] = strength
    return metrics


def num_scored(vector: Tensor) -> float:
    """Return how many tokens the lengths in a combined vector add up to."""
    return float(vector[_SUMMED.index("completions/mean_length")])
