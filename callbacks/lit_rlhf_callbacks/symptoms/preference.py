"""Preference losses: pairs that say nothing or the opposite, a β of another scale, and what margins hide."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    BETA_TOO_LOW,
    HALF_PRECISION_OVERFLOW,
    LEARNING_RATE_TOO_HIGH,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import first_update, stage_of
from lit_rlhf_callbacks.symptoms.readings import fact_below, number

NUM_LATE = 20
REFERENCE_ANCHORED = ("DPO", "CDPO", "RobustDPO", "IPO", "Hinge", "APOZero", "APODown", "DPONorm")
SCALED_BY_BETA = ("DPO", "CDPO", "RobustDPO", "DPONorm", "Hinge", "SimPO")  # IPO's is half the inverse of a margin
FALLEN = 0.3  # nats per token that chosen completions may lose while evaluations worsen
SURELY_FALLEN = 1.0  # nats per token: e times less likely, token by token


def _beta_setting(view: RunView) -> str | None:
    beta, over = number(view, "beta"), view.facts.get("logps_over")
    return f"model.beta: {beta:g} → {2 if over == 'mean' else 0.1}" if beta is not None else None


_SIMILAR_PAIRS = Cause(
    "similar_pairs",
    "chosen and rejected are nearly the same text, so pushing one down takes the other along",
    2.0,
    "python -m lit_rlhf inspect --config CONFIG: read ten pairs and see how much they share",
)
_OFF_POLICY_PAIRS = Cause(
    "off_policy_pairs",
    "the pairs are not what this policy writes",
    1.5,
    "compare logps/chosen per token at the start with entropy: far below it if this is it; sample pairs anew",
)
_BETA_WRONG_SCALE = Cause(
    "beta_wrong_scale",
    "beta belongs to log-probs summed over a completion where means are compared, or the other way round",
    4.0,
    "look at rewards/margins against logps: divide one by the other; sums want about 0.1, means about 2",
    (
        Sign("log-probs are means over tokens", lambda view: view.facts.get("logps_over") == "mean", 2.0),
        Sign("beta is below 0.5", fact_below("beta", 0.5), 1.5),
    ),
    _beta_setting,
)
_SUM_LOG_PROBS = Cause(
    "sum_log_probs",
    "the odds are of log-probs summed over a completion, not of their mean over tokens",
    5.0,
    "divide rewards/chosen by beta × logps/chosen: 1 if this is it, 1 / length if all is well",
    (Sign("log-probs are sums over tokens", lambda view: view.facts.get("logps_over") == "sum", 5.0),),
)
_SATURATED = Cause("too_many_epochs", "the rows have been seen often enough", 1.0, "stop at the best evaluation")

KINDS = (
    Kind(
        "displacement",
        "G",
        "Chosen completions lose too much likelihood, while margins grow",
        (
            likely(LEARNING_RATE_TOO_HIGH, 4),
            _SIMILAR_PAIRS,
            _OFF_POLICY_PAIRS,
            likely(BETA_TOO_LOW, 1.5, Sign("beta is below 0.05", fact_below("beta", 0.05), 2.0)),
        ),
        explained_by=("loss_diverges", "pairs_swapped", "not_a_number"),
    ),
    Kind("beta_scale", "§4", "beta does not suit what the loss compares", (_BETA_WRONG_SCALE,)),
    Kind("margins_saturate", "G", "Margins have nothing left to gain", (_SATURATED,)),
    Kind(
        "orpo_numerics",
        "H",
        "ORPO's odds term outweighs the likelihood",
        (_SUM_LOG_PROBS, likely(HALF_PRECISION_OVERFLOW, 1)),
    ),
)


def displacement(view: RunView) -> Alarm | None:
    """Name chosen completions that lose likelihood by a size that matters, against the policy's own start.

    Both log-probs falling is what these losses do; it takes evaluations that worsen, or a loss of a factor e per token.
    """
    if not _is_preference(view, "rewards/chosen", "rewards/margins", num_rows=NUM_LATE):
        return None
    drop = _per_token(view)
    if drop is None or drop > -FALLEN or view.history["rewards/margins"].recent_median(NUM_LATE) <= 0:
        return None
    worse = _evaluations_worsen(view)
    if not worse and (drop > -SURELY_FALLEN or view.facts.get("algorithm") == "APODown"):
        return None
    window = (view.history["rewards/chosen"].recent[-NUM_LATE][0], view.history.step)
    evidence = (
        Evidence("rewards/chosen", view.history["rewards/chosen"].recent_median(NUM_LATE), 0.0, window=window),
        Evidence("rewards/margins", view.history["rewards/margins"].recent_median(NUM_LATE), 0.0, window=window),
        *worse,
    )
    also = f", and {worse[0].metric} went from {worse[0].baseline:.3g} to {worse[0].value:.3g}" if worse else ""
    summary = f"chosen completions have lost {-drop:.2f} nats per token while margins grew{also}"
    return Alarm("displacement", "warn", "statistical", summary, evidence)


def beta_scale(view: RunView) -> Alarm | None:
    """Name a β for sums where means are compared (or the reverse), from settings, or from what rewards turn out to be.

    Held-out rows are the same every time, so their reward must be β × the change of their log-prob.
    """
    beta, over = number(view, "beta"), view.facts.get("logps_over")
    if stage_of(view) != "preference" or beta is None or over not in ("sum", "mean"):
        return None
    if view.facts.get("algorithm") not in SCALED_BY_BETA:
        return None
    usual, step = (2.0 if over == "mean" else 0.1), first_update(view)
    if beta < 0.5 if over == "mean" else beta >= 1.0:
        evidence = (Evidence("rewards/margins", beta, usual, 0.5 if over == "mean" else 1.0, "beta"),)
        summary = f"beta is {beta:g} where log-probs are {over}s over tokens, which want about {usual:g}"
        return Alarm("beta_scale", "warn", "inferred", summary, evidence, (step, step))
    share = _share_of_sum(view, beta) if over == "sum" else None
    if share is None or share > 0.5:
        return None
    evidence = (Evidence("eval/rewards/rejected", share, 1.0, 0.5, "of beta × log-ratio"),)
    summary = f"held-out rewards are {share:.2f} of beta × the change of their log-prob, as if means were compared"
    return Alarm("beta_scale", "critical", "exact", summary, evidence, (step, step))


def margins_saturate(view: RunView) -> Alarm | None:
    """Say that a known loss has all but reached its floor, so that what follows is only displacement."""
    if not _is_preference(view, "rewards/accuracies", "preference_loss", num_rows=NUM_LATE):
        return None
    known = view.facts.get("step0.preference_loss")
    late = view.history["preference_loss"].recent_median(NUM_LATE)
    if not isinstance(known, int | float) or not 0 <= late < 0.02 * known:
        return None
    if view.history["rewards/accuracies"].recent_median(NUM_LATE) < 0.99:
        return None
    evidence = (Evidence("preference_loss", late, float(known), 0.02 * known, "loss"),)
    summary = f"the loss is {late:.2g} of {known:.3g} at the start and nearly all pairs are ranked right"
    return Alarm("margins_saturate", "info", "inferred", summary, evidence)


def orpo_numerics(view: RunView) -> Alarm | None:
    """Name odds of summed log-probs, or an odds term that outweighs the likelihood, in ORPO."""
    if view.facts.get("algorithm") != "ORPO" or not _is_preference(view, "rewards/chosen", num_rows=3):
        return None
    summed = _is_summed(view)
    if summed is not None:
        return Alarm(
            "orpo_numerics", "critical", "exact", summed[0], summed[1], (first_update(view), first_update(view))
        )
    if not view.history.has("loss", "preference_loss", num_rows=10):
        return None
    odds = view.history["preference_loss"].recent_median(10)
    likelihood = view.history["loss"].recent_median(10) - odds
    if odds < 3 * likelihood or odds < 1.0:
        return None
    evidence = (Evidence("preference_loss", odds, likelihood, 3 * likelihood, "nats"),)
    summary = f"the odds term is {odds:.3g} and the likelihood {likelihood:.3g}: the odds decide alone"
    return Alarm("orpo_numerics", "warn", "inferred", summary, evidence)


RULES: tuple[Rule, ...] = (
    displacement,
    beta_scale,
    margins_saturate,
    orpo_numerics,
)


def _per_token(view: RunView) -> float | None:
    """Return what chosen completions gained in nats per token since the start; None where it is not known.

    Held-out ones are the same every time; else the implicit reward of training rows is against the start policy.
    """
    history, beta = view.history, number(view, "beta")
    if history.has("eval/logps/chosen_per_token", num_rows=2):
        return history["eval/logps/chosen_per_token"].last - history["eval/logps/chosen_per_token"].start[0]
    if not beta or view.facts.get("algorithm") not in REFERENCE_ANCHORED:
        return None
    ratio = history["rewards/chosen"].recent_median(NUM_LATE) / beta
    if view.facts.get("logps_over") == "mean":
        return ratio
    if not history.has("completions/mean_length"):
        return None
    return ratio / max(history["completions/mean_length"].recent_median(NUM_LATE), 1.0)


def _evaluations_worsen(view: RunView) -> tuple[Evidence, ...]:
    """Return held-out values that fell from their best by more than their noise."""
    history, num = view.history, number(view, "num_eval")
    found = []
    if history.has("eval/rewards/accuracies", num_rows=3) and num:
        accuracies = history["eval/rewards/accuracies"]
        best, now = max(value for _, value in accuracies.recent), accuracies.last
        limit = best - 2.5 * math.sqrt(max(best * (1 - best), 0.05) / num)
        if now < limit:
            found.append(Evidence("eval/rewards/accuracies", now, best, limit, "share"))
    if history.has("eval/preference_loss", num_rows=3):
        losses = history["eval/preference_loss"]
        lowest, last = min(value for _, value in losses.recent), losses.recent_values(2)
        if lowest > 0 and min(last) > 1.1 * lowest:
            found.append(Evidence("eval/preference_loss", last[-1], lowest, 1.1 * lowest, "loss"))
    for name, series in history.series.items():
        if name.startswith("sentinel/") and name.endswith("/sigma") and series.count and series.last < -2.5:
            found.append(Evidence(name, series.last, 0.0, -2.5, "σ"))
    return tuple(found)


def _share_of_sum(view: RunView, beta: float) -> float | None:
    """Return a held-out reward over β × the change of its log-prob since the start: 1 where sums are compared."""
    history, names = view.history, ("eval/rewards/rejected", "eval/logps/rejected")
    if not history.has(*names, num_rows=2) or view.facts.get("model.f_divergence", "reverse_kl") != "reverse_kl":
        return None
    reward, logps = (history[name] for name in names)
    change = logps.last - logps.start[0]
    is_whole = (logps.first_step or 0) <= 1 and reward.last_step == logps.last_step
    return reward.last / (beta * change) if is_whole and abs(change) > 0.5 else None


def _is_summed(view: RunView) -> tuple[str, tuple[Evidence, ...]] | None:
    """Tell whether ORPO's rewards are β × sums: the log-prob of a whole completion, not its mean per token."""
    history, beta = view.history, number(view, "beta")
    if not beta or not history.has("logps/chosen", "completions/mean_length"):
        return None
    reward, total, length = (
        history[name].start[0] for name in ("rewards/chosen", "logps/chosen", "completions/mean_length")
    )
    if total == 0.0 or length < 3 or not 0.8 < reward / (beta * total) < 1.25:
        return None
    summary = f"rewards/chosen is beta × logps/chosen ({total:.3g} nats), so the odds are of sums, not of means"
    return summary, (Evidence("rewards/chosen", reward, beta * total / length), Evidence("logps/chosen", total))


def _is_preference(view: RunView, *names: str, num_rows: int) -> bool:
    return view.history.has(*names, num_rows=num_rows) and stage_of(view) == "preference"
