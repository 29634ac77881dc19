"""Whether the reference is the start policy, and stays it."""

from collections.abc import Callable

from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.checks.tokens import mean_difference
from lit_rlhf_callbacks.symptoms.finding import CheckResult

TOLERANCE, HALF_TOLERANCE = 1e-4, 0.05  # nats per token, mean; of 32-bit and of 16-bit computations


def check_reference_is_start(
    logps: Tensor,
    ref_logps: Tensor,
    mask: Tensor,
    *,
    tolerance: float = TOLERANCE,
    is_random: Callable[[], bool] = lambda: False,
    from_table: bool = False,
    step: int = 0,
) -> CheckResult:
    """Check on the first window, before its update, that policy and reference give the same log-probs.

    Args:
        logps: ``[B, T]`` of the policy; or ``[B, 1]``, sums per row divided by the row's tokens.
        ref_logps: Same shape, of the reference.
        mask: Same shape, bool: what counts.
        tolerance: Mean absolute difference, nats per token, that rounding may cause.
        is_random: Asked upon a difference: whether scoring twice in the mode of training differs (dropout).
        from_table: The reference's log-probs were computed before the run and read from disk.
        step: Updates made.
    """
    name = "reference_is_start"
    if not mask.any():
        return unknown(name, step, "no token counts")
    distance = mean_difference(logps, ref_logps, mask)
    if distance <= tolerance:
        text = f"policy and reference agree before the first update (mean difference {distance:.1e} nats per token)"
        return passed(name, step, text, {"mean_difference": distance})
    causes = {
        "dropout_on": "scoring twice in the mode of training differs, so dropout is on",
        "wrong_reference_cache": "the log-probs on disk belong to other weights, data or masks",
        "reference_not_start": "the reference has other weights, or scores another way",
    }
    cause = "dropout_on" if is_random() else "wrong_reference_cache" if from_table else "reference_not_start"
    text = f"policy and reference differ by {distance:.2g} nats per token before the first update: {causes[cause]}"
    return failed(name, step, "reference_not_start", cause, text, {"mean_difference": distance, "tolerance": tolerance})


def check_reference_unmoved(
    ref_logps: Tensor, rescored: Tensor, mask: Tensor, *, tolerance: float = TOLERANCE, step: int = 0
) -> CheckResult:
    """Check that the reference says of the same rows what it said at the start.

    Args:
        ref_logps: ``[B, T]`` as the first window showed them.
        rescored: ``[B, T]`` of the reference now.
        mask: ``[B, T]`` bool.
        tolerance: As of `check_reference_is_start`.
        step: Updates made.
    """
    distance = mean_difference(ref_logps, rescored, mask)
    if distance > tolerance:
        text = f"the reference moved by {distance:.2g} nats per token since the start: it is being trained"
        return failed(
            "reference_unmoved", step, "reference_moved", "reference_trained", text, {"mean_difference": distance}
        )
    text = f"the reference scores the first window's rows as at the start (mean difference {distance:.1e})"
    return passed("reference_unmoved", step, text, {"mean_difference": distance})


def check_reference_hash(start: str, now: str, *, step: int = 0) -> CheckResult:
    """Check the reference by a hash of its weights, where a project offers no more."""
    if start == now:
        return passed("reference_unmoved", step, f"the reference's weights have the hash {now} of the start")
    text = f"the reference's weights have the hash {now}, at the start {start}: it is being trained"
    return failed("reference_unmoved", step, "reference_moved", "reference_trained", text)
