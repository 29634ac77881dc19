"""Values that are known before the first update: ln 2 of DPO, 1 of a hinge, (1/(2β))² of IPO."""

import math
from collections.abc import Callable, Mapping

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05  # of the expected value, at least of 1


def check_start_values(
    expected: Mapping[str, float],
    metrics: Mapping[str, float],
    *,
    tolerance: float = TOLERANCE,
    policy_is_reference: bool | None = None,
    from_table: bool = False,
    is_random: Callable[[], bool] = lambda: False,
    step: int = 0,
) -> CheckResult:
    """Compare the first window's metrics with what they must be.

    Args:
        expected: By metric name, what theory says, whatever the data.
        metrics: Of the first window, from its tokens; never the returned loss, which may carry scale factors.
        tolerance: Relative to the expected value, or to 1 if that is smaller.
        policy_is_reference: Whether both gave the same log-probs on this window; None: not known.
        from_table: The reference's log-probs were read from disk.
        is_random: Asked upon a difference: whether scoring twice in the mode of training differs (dropout).
        step: Updates made.
    """
    name = "start_values"
    known = [key for key in expected if key in metrics and math.isfinite(metrics[key])]
    if not known:
        missing = ", ".join(expected) or "no value is known beforehand"
        return unknown(name, step, f"not in metrics: {missing}" if expected else missing)
    numbers = {key: metrics[key] for key in known}
    off = [key for key in known if abs(metrics[key] - expected[key]) > tolerance * max(1.0, abs(expected[key]))]
    if not off:
        text = ", ".join(f"{key} {metrics[key]:.4g} (must be {expected[key]:.4g})" for key in known)
        return passed(name, step, text, numbers)
    text = ", ".join(f"{key} is {metrics[key]:.4g}, must be {expected[key]:.4g}" for key in off)
    if is_random():
        cause, why = "dropout_on", "scoring twice in the mode of training differs, so dropout is on"
    elif policy_is_reference:
        cause, why = "beta_wrong_scale", "policy and reference agree, so the loss is computed another way"
    elif from_table:
        cause, why = "wrong_reference_cache", "the log-probs on disk belong to other weights, data or masks"
    else:
        cause, why = "reference_not_start", "the reference is not the start policy"
    return failed(name, step, "loss_off_at_start", cause, f"before the first update {text}: {why}", numbers)


def check_start_likelihood(nll: float, vocab_size: int, *, step: int = 0) -> CheckResult:
    """Check that a language model starts well under the loss of guessing, ln V.

    Args:
        nll: Mean negative log-likelihood of the first window's supervised tokens, nats.
        vocab_size: V.
        step: Updates made.
    """
    name, guessing = "start_likelihood", math.log(vocab_size)
    numbers = {"nll": nll, "guessing": guessing}
    if nll < 0.9 * guessing:
        return passed(name, step, f"{nll:.2f} nats per token, of guessing {guessing:.2f}", numbers)
    text = (
        f"{nll:.2f} nats per token before the first update, where guessing gives {guessing:.2f}: labels are shifted, "
        "the template is not the model's, or the model is untrained"
    )
    return failed(name, step, "loss_off_at_start", "template_mismatch", text, numbers, "warn")
