"""What must hold before the first update: losses, ratios and distances with a known value, and what checks find there.

Most of these kinds are named by exact checks inside the trainer; the rules here read the same identities off a log's
first row, which holds values from before the first update.
"""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    DROPOUT_ON,
    LABELS_SWAPPED,
    LEARNING_RATE_TOO_HIGH,
    REFERENCE_NOT_START,
    STALE_SAMPLER_WEIGHTS,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.objective import first_update, stage_of
from lit_rlhf_callbacks.symptoms.readings import fact_below, fact_is, number

NEW_HEAD = 0.2  # nats: a new head scores everything near zero, not at it

BETA_WRONG_SCALE = Cause(
    "beta_wrong_scale",
    "beta belongs to log-probs summed over a completion where means are compared, or the other way round",
    1.0,
    "divide rewards/margins by the difference of logps: sums want a beta of about 0.1, means one of about 2",
    (Sign("beta is below 0.5 where means are compared", lambda view: _has_sum_scale(view), 4.0, 0.3),),
    lambda view: _beta_setting(view),
)
WRONG_REFERENCE_CACHE = Cause(
    "wrong_reference_cache",
    "the reference's log-probs on disk are another model's, or of other rows",
    1.0,
    "delete the cache of reference log-probs and start again: the first loss is as it should be if this is it",
    (Sign("reference log-probs come from disk", fact_is("model.reference", "precomputed"), 8.0, 0.02),),
)
TEMPLATE_MISMATCH = Cause(
    "template_mismatch",
    "the chat template is not the one the policy was trained with",
    0.5,
    "python -m lit_rlhf inspect --config CONFIG: read the special tokens of the first sequence",
)
TEMPERATURE_MISMATCH = Cause(
    "temperature_mismatch",
    "the sampler's temperature is not what logits are divided by in training",
    1.0,
    "compare sampling.temperature with what training scores with: the ratio is 1 once they agree",
    (Sign("temperature is not 1", lambda view: _is_warm_or_cold(view), 3.0, 0.5),),
)
_ADVANTAGE_SIGN = Cause(
    "advantage_sign",
    "the sign of the advantage, or of the loss, is wrong",
    4.0,
    "compare log-probs of rewarded completions before and after one update: they fall if this is it",
)
_PAIRS_SWAPPED = Cause(
    "pairs_swapped",
    "chosen and rejected are the wrong way round",
    1.0,
    "python -m lit_rlhf inspect --config CONFIG: read ten pairs",
    (Sign("the run does not learn from pairs", lambda view: stage_of(view) == "rl", 0.02),),
)

KINDS = (
    Kind(
        "loss_off_at_start",
        "A",
        "The first loss is not what the formula gives",
        (
            likely(REFERENCE_NOT_START, 3, Sign("the run has no reference", fact_is("reference", "none"), 0.05)),
            BETA_WRONG_SCALE,
            likely(LABELS_SWAPPED, 1, Sign("it is a reward model's", fact_is("stage", "reward_model"), 2.0)),
            likely(DROPOUT_ON, 1),
            WRONG_REFERENCE_CACHE,
            TEMPLATE_MISMATCH,
        ),
        explained_by=("reference_not_start", "template_mismatch"),
    ),
    Kind(
        "reference_not_start",
        "C",
        "The reference is not the start policy",
        (likely(REFERENCE_NOT_START, 3), likely(DROPOUT_ON, 1), WRONG_REFERENCE_CACHE),
    ),
    Kind(
        "ratio_not_one",
        "§2",
        "The first ratio of a phase is not 1",
        (likely(DROPOUT_ON, 2), likely(STALE_SAMPLER_WEIGHTS, 1), TEMPERATURE_MISMATCH),
        explained_by=("sampler_mismatch",),
    ),
    Kind(
        "sign_flipped",
        "§8",
        "Updates push the wrong way",
        (_ADVANTAGE_SIGN, likely(LEARNING_RATE_TOO_HIGH, 1), _PAIRS_SWAPPED),
    ),
    Kind(
        "kl_estimator_wrong",
        "C",
        "The KL estimate contradicts its own tokens",
        (
            Cause("kl_sign", "the log-ratio has the wrong sign", 3.0, "compare kl/k1 with kl/k3: opposite signs"),
            Cause(
                "kl_not_k3",
                "the estimate is k1, which is noisy and of any sign, or one that is nobody's",
                2.0,
                "compare kl with kl/k1, kl/k2 and kl/k3 of the same row",
                (Sign("the estimator is k1", fact_is("estimator", "k1"), 5.0),),
                lambda view: "model.kl_estimator: k1 → k3" if view.facts.get("estimator") == "k1" else None,
            ),
        ),
    ),
    Kind(
        "sampler_mismatch",
        "§2",
        "Sampler and learner disagree about the same tokens",
        (
            likely(STALE_SAMPLER_WEIGHTS, 3),
            TEMPERATURE_MISMATCH,
            Cause(
                "sampler_precision",
                "the sampler computes in another precision",
                1.0,
                "run both in fp32 once: the difference goes away if this is it; else set model.tis_cap 2",
                (Sign("training is in 16 bits", lambda view: is_16_bit(view), 2.0, 0.7),),
            ),
            Cause(
                "truncated_sampling",
                "top_p or top_k renormalise what is sampled from, and training does not",
                1.0,
                "set model.sampling.top_p 1.0 and top_k 0: the difference goes away if this is it",
                (Sign("top_p is below 1", fact_below("sampling.top_p", 1.0), 6.0, 0.3),),
            ),
        ),
    ),
    Kind(
        "reference_moved",
        "C",
        "The reference moves",
        (
            Cause(
                "reference_trained",
                "the reference's weights are trained along with the policy's",
                1.0,
                "look at reference_unmoved in checks.jsonl, or score fixed rows by it twice, 20 updates apart",
            ),
        ),
    ),
)


def loss_off_at_start(view: RunView) -> Alarm | None:
    """Compare the first row's loss, and its margin, with the values that the formula gives before any update."""
    for name in ("preference_loss", "rewards/margins", "reward_loss"):
        known, first = _first(view, name)
        if known is None or first is None:
            continue
        tolerance = _loss_tolerance(view, name, known)
        if abs(first - known) > tolerance:
            severity: Severity = "warn" if name == "reward_loss" else "critical"
            return _alarm(view, "loss_off_at_start", name, first, known, tolerance, severity)
    return None


def kl_off_at_start(view: RunView) -> Alarm | None:
    """Compare the first row's KL with 0."""
    known, first = _first(view, "kl")
    if known is None or first is None:
        return None
    tolerance = (0.1 if view.facts.get("algorithm") == "KTO" else 0.01) if is_16_bit(view) else 1e-3
    return (
        _alarm(view, "reference_not_start", "kl", first, known, tolerance) if abs(first - known) > tolerance else None
    )


def ratio_off_at_start(view: RunView) -> Alarm | None:
    """Compare the first row's mean ratio with 1."""
    known, first = _first(view, "ratio/mean")
    if known is None or first is None:
        return None
    tolerance = 0.02 if is_16_bit(view) else 1e-3
    return (
        _alarm(view, "ratio_not_one", "ratio/mean", first, known, tolerance) if abs(first - known) > tolerance else None
    )


RULES: tuple[Rule, ...] = (loss_off_at_start, kl_off_at_start, ratio_off_at_start)


def is_16_bit(view: RunView) -> bool:
    """Tell whether forwards are in bf16 or fp16; what is not known is taken to be."""
    return "16" in str(view.facts.get("trainer.precision", "16"))


def _first(view: RunView, name: str) -> tuple[float | None, float | None]:
    """Return a metric's known value and that of the run's first row, if that row is in the log."""
    known, series = view.facts.get(f"step0.{name}"), view.history.series.get(name)
    if not isinstance(known, int | float) or series is None or not series.start or view.history.anchored_at:
        return None, None
    is_first = series.first_step is not None and series.first_step <= 1
    is_whole = is_first and series.count >= view.history.num_rows - 1
    return float(known), series.start[0] if is_whole else None


def _loss_tolerance(view: RunView, name: str, known: float) -> float:
    if name == "reward_loss":
        return NEW_HEAD
    if name == "rewards/margins":
        return (0.5 if is_16_bit(view) else 0.02) * (number(view, "beta") or 1.0)
    return (0.05 if is_16_bit(view) else 0.01) * abs(known)


def _alarm(
    view: RunView, kind: str, name: str, first: float, known: float, tolerance: float, severity: Severity = "critical"
) -> Alarm:
    step = first_update(view)
    evidence = (Evidence(name, first, known, known + math.copysign(tolerance, first - known), window=(step, step)),)
    summary = f"{name} is {first:.4g} before the first update, where it is {known:.4g} by definition"
    return Alarm(kind, severity, "exact", summary, evidence, (step, step))


def _has_sum_scale(view: RunView) -> bool | None:
    beta, over = number(view, "beta"), view.facts.get("logps_over")
    return None if beta is None or over is None else over == "mean" and beta < 0.5


def _beta_setting(view: RunView) -> str | None:
    beta, over = number(view, "beta"), view.facts.get("logps_over")
    return f"model.beta: {beta:g} → {2 if over == 'mean' else 0.1}" if beta is not None else None


def _is_warm_or_cold(view: RunView) -> bool | None:
    temperature = number(view, "sampling.temperature", "model.sampling.temperature")
    return None if temperature is None else temperature != 1.0
