"""Whether what samples is what is trained: log-probs of the same tokens, by both, from the same weights."""

from collections.abc import Callable, Sequence

from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.checks.tokens import mean_difference
from lit_rlhf_callbacks.symptoms.finding import CheckResult

TOLERANCE, HALF_TOLERANCE = 1e-3, 0.1  # nats per token, mean; of 32-bit and of 16-bit computations


def check_sampler(
    learner_logps: Tensor,
    sampler_logps: Tensor,
    mask: Tensor,
    *,
    tolerance: float = TOLERANCE,
    earlier: Sequence[float] = (),
    is_random: Callable[[], bool] = lambda: False,
    step: int = 0,
) -> CheckResult:
    """Compare sampler and learner before a rollout's first update.

    Args:
        learner_logps: ``[B, T]`` of the learner with the weights that sampled (``old_logps``).
        sampler_logps: ``[B, T]`` as the sampler gave them.
        mask: ``[B, T]`` bool.
        tolerance: Mean absolute difference, nats per token, that rounding may cause.
        earlier: Mean differences of looks before, oldest first: one that grows with training is of stale weights.
        is_random: Asked upon a difference: whether scoring twice in the mode of training differs (dropout).
        step: Updates made.
    """
    name = "sampler_agrees"
    if not mask.any():
        return unknown(name, step, "no token counts")
    distance = mean_difference(learner_logps, sampler_logps, mask)
    if distance <= tolerance:
        text = f"sampler and learner agree (mean difference {distance:.1e} nats per token)"
        return passed(name, step, text, {"mean_difference": distance})
    text = f"sampler and learner differ by {distance:.2g} nats per token on the tokens just sampled"
    if is_random():
        text += ": scoring twice in the mode of training differs, so dropout is on"
        return failed(name, step, "ratio_not_one", "dropout_on", text, {"mean_difference": distance})
    if earlier and min(earlier) <= tolerance:
        text += f", at first by {min(earlier):.1g}: it samples from weights that no longer are the learner's"
        return failed(name, step, "sampler_mismatch", "stale_sampler_weights", text, {"mean_difference": distance})
    cause, why = _pattern(learner_logps.float()[mask], sampler_logps.float()[mask])
    return failed(name, step, "sampler_mismatch", cause, f"{text}: {why}", {"mean_difference": distance})


def check_ratio_is_one(
    logps: Tensor,
    old_logps: Tensor,
    mask: Tensor,
    *,
    tolerance: float = TOLERANCE,
    is_random: Callable[[], bool] = lambda: False,
    step: int = 0,
) -> CheckResult:
    """Check that the ratio to the old policy is exactly 1 on every token before a run's first update.

    The mean ratio says nothing: over samples of the old policy it is 1 whatever the new one is.

    Args:
        logps: ``[B, T]`` of the policy that made the first window's loss.
        old_logps: ``[B, T]`` of the old policy.
        mask: ``[B, T]`` bool.
        tolerance: As of `check_sampler`.
        is_random: As of `check_sampler`.
        step: Updates made.
    """
    name = "ratio_is_one"
    if not mask.any():
        return unknown(name, step, "no token counts")
    distance = mean_difference(logps, old_logps, mask)
    if distance <= tolerance:
        return passed(
            name, step, f"log-ratios are zero at first (mean size {distance:.1e})", {"mean_difference": distance}
        )
    text = f"log-ratios are {distance:.2g} nats per token before the first update, where they must be zero"
    if is_random():
        text += ": scoring twice in the mode of training differs, so dropout is on"
        return failed(name, step, "ratio_not_one", "dropout_on", text, {"mean_difference": distance})
    cause, why = _pattern(logps.float()[mask], old_logps.float()[mask])
    cause = cause if cause == "temperature_mismatch" else "stale_sampler_weights"
    return failed(name, step, "ratio_not_one", cause, f"{text}: {why}", {"mean_difference": distance})


def check_sampler_weights(learner_hash: str, sampler_hash: str, *, step: int = 0) -> CheckResult:
    """Compare hashes of the weights that learn and that sample, taken at the same moment."""
    if learner_hash == sampler_hash:
        return passed("sampler_weights", step, f"the sampler has the learner's weights ({learner_hash})")
    text = f"the sampler's weights have the hash {sampler_hash}, the learner's {learner_hash}"
    return failed("sampler_weights", step, "sampler_mismatch", "stale_sampler_weights", text)


def _pattern(learner: Tensor, sampler: Tensor) -> tuple[str, str]:
    """Read off N log-probs why two scorings differ."""
    difference = sampler - learner
    size = float(difference.abs().mean())
    if float(difference.min()) > -1e-3 - 0.01 * size:
        return "truncated_sampling", "no token is less likely to the sampler, as top-k or top-p renormalise"
    slope, correlation = _regression(learner, sampler)
    if correlation > 0.95 and abs(slope - 1) > 0.1:
        return (
            "temperature_mismatch",
            f"its log-probs are {slope:.2f} times the learner's, as another temperature makes them",
        )
    if size < 0.05 and abs(float(difference.mean())) < size / 4:
        return "sampler_precision", "small and without direction, as other kernels or a lower precision make it"
    return "stale_sampler_weights", "large and unlike a temperature, as other weights make it"


def _regression(x: Tensor, y: Tensor) -> tuple[float, float]:
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    spread = float(x.square().sum())
    if spread == 0 or float(y.square().sum()) == 0:
        return 1.0, 0.0
    product = float((x * y).sum())
    return product / spread, product / (spread * float(y.square().sum())) ** 0.5


def is_random(score: Callable[[], Tensor], mask: Tensor) -> bool:
    """Score the same tokens twice, in whatever mode the module is in, and tell whether the results differ.

    >>> import torch
    >>> is_random(lambda: torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    False
    """
    return mean_difference(score(), score(), mask) > 1e-6
