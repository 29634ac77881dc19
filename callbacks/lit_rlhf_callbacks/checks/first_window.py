"""What the first window must show, wired to the protocol."""

from collections.abc import Iterator

import torch

from lit_rlhf_callbacks.checks.labels import (
    check_double_bos,
    check_label_alignment,
    check_stop_token,
    check_supervised_tokens,
)
from lit_rlhf_callbacks.checks.look import Look
from lit_rlhf_callbacks.checks.reference import HALF_TOLERANCE, TOLERANCE, check_reference_is_start
from lit_rlhf_callbacks.checks.result import unknown
from lit_rlhf_callbacks.checks.sampler import HALF_TOLERANCE as HALF_SAMPLER
from lit_rlhf_callbacks.checks.sampler import TOLERANCE as SAMPLER
from lit_rlhf_callbacks.checks.sampler import check_ratio_is_one
from lit_rlhf_callbacks.checks.start_values import HALF_TOLERANCE as HALF_VALUE
from lit_rlhf_callbacks.checks.start_values import TOLERANCE as VALUE
from lit_rlhf_callbacks.checks.start_values import check_start_likelihood, check_start_values
from lit_rlhf_callbacks.checks.tokens import mean_difference
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NEW_HEAD = 0.3  # a new reward head scores near zero, not at it


def label_checks(look: Look) -> Iterator[CheckResult]:
    """Look at what is learned: of given answers only, since a sampler marks its own."""
    if not look.has("input_ids"):
        yield unknown("supervised_tokens", look.step, "training_step shows no tokens")
        return
    yield check_double_bos(look.tokens, bos_id=look.facts.get("bos_id"), step=look.step)
    if look.stage == "rl":
        return
    yield check_supervised_tokens(look.tokens, whole_rows_meant=look.facts.get("whole_rows_meant"), step=look.step)
    stop_ids = look.facts.get("stop_ids", ())
    yield check_label_alignment(look.tokens, stop_ids, step=look.step)
    if look.stage in ("sft", "preference"):
        severity = "critical" if look.stage == "sft" else "warn"
        yield check_stop_token(look.tokens, stop_ids, severity=severity, step=look.step)  # type: ignore[arg-type]


def identity_checks(look: Look) -> Iterator[CheckResult]:
    """Compare the first window with what theory says of it."""
    expected = dict(look.facts.get("step0", {}))
    from_table = look.has("ref_logps_sum")
    distance = _distance_to_reference(look)
    tolerance = HALF_TOLERANCE if look.is_half else TOLERANCE
    if look.has("logps", "ref_logps"):
        tokens = look.tokens
        yield check_reference_is_start(
            tokens["logps"],
            tokens["ref_logps"],
            look.mask,
            tolerance=tolerance,
            is_random=look.is_random,
            step=look.step,
        )
        if look.stage == "rl":
            expected.pop("kl", None)  # the same, but a mean of which parts may cancel
    elif from_table and distance is not None:
        means = torch.tensor([[distance]]), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
        yield check_reference_is_start(
            *means, tolerance=tolerance, is_random=look.is_random, from_table=True, step=look.step
        )
    if look.has("logps", "old_logps"):
        yield check_ratio_is_one(
            look.tokens["logps"],
            look.tokens["old_logps"],
            look.mask,
            tolerance=HALF_SAMPLER if look.is_half else SAMPLER,
            is_random=look.is_random,
            step=look.step,
        )
    expected.pop("ratio/mean", None)  # a mean that is 1 whatever happens
    if expected:
        value_tolerance = HALF_VALUE if look.is_half else VALUE
        yield check_start_values(
            expected,
            look.metrics,
            tolerance=NEW_HEAD if look.stage == "reward_model" else value_tolerance,
            policy_is_reference=None if distance is None else distance <= tolerance,
            from_table=from_table,
            is_random=look.is_random,
            step=look.step,
        )
    if look.stage == "sft" and look.has("logps") and "vocab_size" in look.facts and look.mask.any():
        nll = -float(look.tokens["logps"][look.mask].mean())
        yield check_start_likelihood(nll, look.facts["vocab_size"], step=look.step)


def _distance_to_reference(look: Look) -> float | None:
    """Return the mean absolute difference of log-probs per token, or per row over its tokens."""
    if not look.has("logps") or not look.mask.any():
        return None
    if look.has("ref_logps"):
        return mean_difference(look.tokens["logps"], look.tokens["ref_logps"], look.mask)
    if not look.has("ref_logps_sum"):
        return None
    sums, counts = (look.tokens["logps"] * look.mask).sum(-1), look.mask.sum(-1).clamp(min=1)
    return float(((sums - look.tokens["ref_logps_sum"]).abs() / counts).mean())
