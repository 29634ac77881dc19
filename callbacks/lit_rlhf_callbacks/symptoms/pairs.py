"""Pairs that say nothing, or the opposite of what they should."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    LABELS_NOISY,
    LABELS_SWAPPED,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import first_update, mean_of, num_updates, stage_of
from lit_rlhf_callbacks.symptoms.readings import fact_below, start_of
from lit_rlhf_callbacks.symptoms.updates import barely_moved

NUM_LATE = 20
NUM_POOLED = 30
MIN_UPDATES = 40
NUM_SIGMAS = 2.6
CHANCE = 0.57  # what the share of right pairs may reach, at most, to be called chance
WRONG = 0.45
SURPRISING = 2.5  # how often less likely chosen completions may be than rejected ones of the same length
NUM_SAME = 3  # rows

_TRUNCATION_TOO_SHORT = Cause(
    "truncation_too_short",
    "truncation cuts off what chosen and rejected differ in",
    2.0,
    "look at data.max_length and at the number of truncated rows in the first lines of the log",
    (Sign("max_length is below 256", fact_below("max_length", 256), 2.0, 0.5),),
)
_DUPLICATE_ROWS = Cause(
    "duplicate_rows",
    "rows hold the same text as chosen and as rejected",
    2.0,
    "python -m lit_rlhf inspect --config CONFIG: read ten pairs",
)
_NOT_LEARNING = ("policy_not_moving", "no_update", "updates_swallowed", "identical_pairs", "beta_scale")

KINDS = (
    Kind(
        "pairs_swapped",
        "G",
        "Rejected completions are preferred",
        (likely(LABELS_SWAPPED, 5), likely(LEARNING_RATE_TOO_HIGH, 1)),
        explained_by=("sign_flipped",),
    ),
    Kind(
        "identical_pairs",
        "G",
        "Chosen and rejected completions score exactly the same",
        (_TRUNCATION_TOO_SHORT, _DUPLICATE_ROWS),
        explained_by=("no_update",),
    ),
    Kind(
        "accuracy_at_chance",
        "A",
        "Pairs are ranked no better than by chance",
        (
            likely(LABELS_NOISY, 3, Sign("the policy moves", lambda view: barely_moved(view) is False, 2.0, 0.3)),
            likely(LABELS_SWAPPED, 1),
            likely(LEARNING_RATE_TOO_LOW, 2, Sign("the policy has hardly moved", barely_moved, 4.0, 0.2)),
        ),
        explained_by=_NOT_LEARNING,
    ),
)


def pairs_swapped(view: RunView) -> Alarm | None:
    """Name rewards that order pairs the wrong way round, by more than chance."""
    name = "accuracy" if stage_of(view) == "reward_model" else "rewards/accuracies"
    if view.history.has(name, num_rows=NUM_LATE):
        values = view.history[name].recent_values(NUM_LATE)
        if _upper(values) < WRONG:
            share = mean_of(values).value
            summary = f"only {share:.0%} of pairs are ranked right: training pushes the other way"
            return Alarm(
                "pairs_swapped", "critical", "statistical", summary, (Evidence(name, share, 0.5, WRONG, "share"),)
            )
    held_out = _contradicted(view)
    if held_out is not None:
        return held_out
    return _swapped_at_start(view)


def identical_pairs(view: RunView) -> Alarm | None:
    """Name pairs of which both sides score the same to the last digits, three rows in a row."""
    is_reward_model = stage_of(view) == "reward_model"
    names = ("rewards/chosen", "rewards/rejected") if is_reward_model else ("logps/chosen", "logps/rejected")
    if stage_of(view) not in ("preference", "reward_model") or not view.history.has(*names, num_rows=NUM_SAME):
        return None
    chosen, rejected = (view.history[name].recent_values(NUM_SAME) for name in names)
    if any(abs(a - b) > 1e-6 * abs(a) or a == 0.0 for a, b in zip(chosen, rejected, strict=True)):
        return None
    step = view.history[names[0]].recent[-NUM_SAME][0]
    evidence = tuple(Evidence(name, values[-1]) for name, values in zip(names, (chosen, rejected), strict=True))
    summary = f"chosen and rejected completions both score {chosen[-1]:.4g}: the pairs are identical"
    return Alarm("identical_pairs", "critical", "exact", summary, evidence, (step, step))


def accuracy_at_chance(view: RunView) -> Alarm | None:
    """Name pairs that are still ranked by chance after enough updates, as far as their number can tell."""
    if not _is_ready(view, "rewards/accuracies", num_rows=NUM_POOLED) or num_updates(view) < MIN_UPDATES:
        return None
    accuracies = view.history["rewards/accuracies"]
    values = accuracies.recent_values(NUM_POOLED)
    late = mean_of(values)
    if not accuracies.is_armed(NUM_LATE) or late.value < WRONG or _upper(values) > CHANCE:
        return None
    evidence = (Evidence("rewards/accuracies", late.value, 0.5, CHANCE, "share"),)
    summary = f"after {num_updates(view):.0f} updates {late.value:.1%} of pairs are ranked right: chance"
    step = first_update(view)
    return Alarm("accuracy_at_chance", "warn", "statistical", summary, evidence, (step, step))


RULES: tuple[Rule, ...] = (pairs_swapped, identical_pairs, accuracy_at_chance)


def _is_ready(view: RunView, *names: str, num_rows: int) -> bool:
    return view.history.has(*names, num_rows=num_rows) and stage_of(view) == "preference"


def _upper(values: list[float]) -> float:
    """Return what a mean over rows may be at most; their scatter holds the number of pairs behind each."""
    mean = mean_of(values)
    return mean.value + NUM_SIGMAS * mean.error


def _contradicted(view: RunView) -> Alarm | None:
    """Name implicit rewards that order training pairs one way and held-out ones the other, twice."""
    names = ("eval/rewards/chosen", "eval/rewards/rejected", "rewards/chosen", "rewards/rejected")
    if not _is_ready(view, *names, num_rows=3) or not view.history.has(*names[2:], num_rows=NUM_LATE):
        return None
    if view.facts.get("reference") == "none":
        return None  # without a reference these are log-probs, which say little of what was learned
    chosen, rejected = (view.history[name].recent_values(2) for name in names[:2])
    worst = max(one - other for one, other in zip(chosen, rejected, strict=True))
    if worst >= 0:
        return None
    good, bad = (mean_of(view.history[name].recent_values(NUM_LATE)) for name in names[2:])
    gap, error = good.value - bad.value, math.hypot(good.error, bad.error)
    if gap < 5 * error or worst > -0.25 * gap:
        return None
    evidence = (
        Evidence("eval/rewards/chosen", chosen[-1], rejected[-1], unit="reward"),
        Evidence("rewards/chosen", good.value, bad.value, unit="reward"),
    )
    summary = f"chosen completions lead by {gap:.2g} in training and trail by {-worst:.2g} on held-out rows"
    step = first_update(view)
    return Alarm("pairs_swapped", "critical", "statistical", summary, evidence, (step, step))


def _swapped_at_start(view: RunView) -> Alarm | None:
    """Name chosen completions that the start policy finds far less likely than rejected ones, token by token."""
    metric = "logps/chosen_per_token" if "logps/chosen_per_token" in view.history.series else "logps/chosen"
    lengths = ("completions/min_length", "completions/max_length")
    if not _is_ready(view, metric, metric.replace("chosen", "rejected"), num_rows=NUM_SAME):
        return None
    chosen, rejected = start_of(view, metric), start_of(view, metric.replace("chosen", "rejected"))
    if chosen is None or rejected is None or rejected >= 0 or chosen > SURPRISING * rejected:
        return None
    if metric == "logps/chosen":  # sums: only where lengths cannot explain it
        shortest, longest = (start_of(view, name) for name in lengths)
        if not shortest or longest is None or longest > SURPRISING * shortest:
            return None
    evidence = (Evidence(metric, chosen, rejected, SURPRISING * rejected, "nats"),)
    summary = f"the start policy gives chosen completions {chosen:.3g} and rejected ones {rejected:.3g} nats ({metric})"
    return Alarm("pairs_swapped", "warn", "inferred", summary, evidence, (first_update(view), first_update(view)))
