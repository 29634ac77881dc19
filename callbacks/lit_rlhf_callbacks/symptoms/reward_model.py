"""Reward models: none better than chance, scores that wander off, held-out pairs that get worse."""

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
from lit_rlhf_callbacks.symptoms.held_out import TOO_LITTLE_DATA, TOO_MANY_EPOCHS, turned_up
from lit_rlhf_callbacks.symptoms.objective import first_update, mean_of, num_updates, stage_of
from lit_rlhf_callbacks.symptoms.readings import change, fact_below, fact_is, level_of, number
from lit_rlhf_callbacks.symptoms.robust import wilson
from lit_rlhf_callbacks.symptoms.updates import barely_moved

NUM_LATE = 30
NUM_ARMED = 20  # rows after the baseline
MIN_UPDATES = 40
LONG = 200  # updates after which a reward model that is at chance is no slow starter
LATE = 0.6  # of the run; some heads wander for a hundred updates before they learn
CHANCE = 0.57
NUM_SIGMAS = 2.6
WANDERED = 10.0  # times the margin between good and bad
LEARNED = 0.9  # accuracy on training pairs that should show on others
NUM_EVALUATIONS = 3
FOLLOWS_LENGTH = 0.6  # correlation of score and length

_SFT_LEARNING_RATE = Cause(
    "sft_learning_rate",
    "the learning rate is that of fine-tuning, and a new head needs about ten times as much",
    2.0,
    "run 40 updates with model.optimizer.init_args.lr ten times as high: accuracy leaves chance if this is it",
    (
        Sign("the learning rate is below 2e-5", fact_below("optimizer.lr", 2e-5), 3.0, 0.2),
        Sign("the weights have hardly moved", barely_moved, 3.0, 0.3),
    ),
    change("model.optimizer.init_args.lr", "optimizer.lr", lambda old: old * 10),
)
_NO_CENTRING = Cause(
    "no_centring",
    "nothing holds scores near zero: only their differences are trained",
    3.0,
    "set model.center_coef 0.01: mean_reward stays near zero if this is it",
    (Sign("center_coef is 0", fact_is("model.center_coef", 0, 0.0), 2.0, 0.1),),
    lambda view: "model.center_coef: 0 → 0.01" if view.facts.get("model.center_coef") == 0 else None,
)

KINDS = (
    Kind(
        "reward_model_at_chance",
        "A",
        "The reward model ranks no better than chance",
        (
            likely(LEARNING_RATE_TOO_LOW, 3, Sign("the weights have hardly moved", barely_moved, 4.0, 0.2)),
            likely(LABELS_NOISY, 3, Sign("the weights move", lambda view: barely_moved(view) is False, 2.0, 0.3)),
            likely(LABELS_SWAPPED, 1),
            _SFT_LEARNING_RATE,
            likely(LEARNING_RATE_TOO_HIGH, 1),
        ),
        explained_by=("no_update", "updates_swallowed", "zero_gradient", "loss_diverges", "identical_pairs"),
    ),
    Kind(
        "reward_scores_drift",
        "B",
        "Scores wander away from zero",
        (_NO_CENTRING, likely(LEARNING_RATE_TOO_HIGH, 1)),
        explained_by=("loss_diverges",),
    ),
    Kind(
        "reward_model_overfit",
        "A",
        "Held-out pairs get worse while training pairs get better",
        (TOO_MANY_EPOCHS, TOO_LITTLE_DATA, likely(LEARNING_RATE_TOO_HIGH, 1)),
        explained_by=("loss_diverges",),
    ),
)


def reward_model_at_chance(view: RunView) -> Alarm | None:
    """Name accuracy that cannot be told from a coin's, late in the run or where the weights hardly moved."""
    if stage_of(view) != "reward_model" or not view.history.has("accuracy", num_rows=NUM_LATE):
        return None
    accuracy = view.history["accuracy"]
    updates, planned = num_updates(view), number(view, "trainer.max_steps") or 0.0
    is_late = updates >= LONG or (planned > 0 and updates >= max(LATE * planned, 1.5 * MIN_UPDATES))
    if not accuracy.is_armed(NUM_ARMED) or not (is_late or (updates >= MIN_UPDATES and barely_moved(view))):
        return None
    late = mean_of(accuracy.recent_values(NUM_LATE))
    if late.value + NUM_SIGMAS * late.error > CHANCE or _is_better_held_out(view):
        return None
    held_out = view.history.series.get("eval/accuracy")
    more = (Evidence("eval/accuracy", held_out.last, 0.5, unit="share"),) if held_out and held_out.count else ()
    evidence = (Evidence("accuracy", late.value, 0.5, CHANCE, "share"), *more)
    summary = (
        f"after {updates:.0f} updates {late.value:.1%} ± {late.error:.1%} of the last {NUM_LATE} rows' comparisons are "
        "right: chance"
    )
    step = first_update(view)
    return Alarm("reward_model_at_chance", "warn", "statistical", summary, evidence, (step, step))


def reward_scores_drift(view: RunView) -> Alarm | None:
    """Say that scores' mean has left zero by many times what separates good from bad."""
    if stage_of(view) != "reward_model" or not view.history.has("mean_reward", "margin", num_rows=NUM_LATE):
        return None
    mean = view.history["mean_reward"].recent_median(NUM_LATE)
    margin = max(abs(view.history["margin"].recent_median(NUM_LATE)), 0.5)
    start = view.history["mean_reward"].start[0]
    if abs(mean) < WANDERED * margin or abs(mean) < 3 * abs(start):
        return None
    evidence = (
        Evidence("mean_reward", mean, start, math.copysign(WANDERED * margin, mean), "reward"),
        Evidence("margin", margin, unit="reward"),
    )
    summary = f"scores average {mean:.3g} where good and bad are {margin:.2g} apart; they began at {start:.2g}"
    return Alarm("reward_scores_drift", "warn", "statistical", summary, evidence)


def reward_model_overfit(view: RunView) -> Alarm | None:
    """Name a held-out loss that turned up while training falls, without a gain in held-out accuracy."""
    if stage_of(view) != "reward_model":
        return None
    turn = turned_up(view)
    if turn is None:
        return None
    summary, evidence, onset = turn
    if view.history.has("eval/accuracy"):
        points = list(view.history["eval/accuracy"].recent)
        then = next((value for step, value in reversed(points) if step <= onset[0]), points[0][1])
        num = number(view, "num_eval")
        noise = 2 * math.sqrt(then * (1 - then) / num) if num else 0.0
        if points[-1][1] > then + noise:
            return None  # sure of itself, and right more often
        evidence = (*evidence, Evidence("eval/accuracy", points[-1][1], then, unit="share"))
    return Alarm("reward_model_overfit", "warn", "statistical", summary, evidence, onset)


def reward_model_order(view: RunView) -> Alarm | None:
    """Name held-out comparisons that are wrong more often than chance, while training ones are right."""
    if stage_of(view) != "reward_model" or not view.history.has("eval/accuracy", "accuracy", num_rows=2):
        return None
    held_out, num = view.history["eval/accuracy"], number(view, "num_eval")
    train = mean_of(view.history["accuracy"].recent_values(NUM_LATE))
    if not num or wilson(held_out.last * num, num, 3.0)[1] > 0.5 or train.value - 3 * train.error < 0.5:
        return None
    evidence = (Evidence("eval/accuracy", held_out.last, 0.5, 0.5, "share"), Evidence("accuracy", train.value, 0.5))
    summary = f"{train.value:.0%} of training comparisons are right and only {held_out.last:.0%} of held-out ones"
    step = first_update(view)
    return Alarm("reward_model_order", "critical", "statistical", summary, evidence, (step, step))


def learned_elsewhere(view: RunView) -> Alarm | None:
    """Name training pairs that are nearly all ranked right while held-out ones stay at chance: length, if scores do."""
    if stage_of(view) != "reward_model" or not view.history.has("eval/accuracy", num_rows=NUM_EVALUATIONS + 1):
        return None
    num = number(view, "num_eval")
    if not num or not view.history.has("accuracy", num_rows=NUM_EVALUATIONS):
        return None
    train = view.history["accuracy"].recent_median(NUM_LATE // 2)
    late = view.history["eval/accuracy"].recent_values(NUM_EVALUATIONS)
    share = sum(late) / len(late)
    at_chance = share < 0.5 + math.sqrt(0.25 / num) and all(wilson(value * num, num)[0] <= 0.5 for value in late)
    if train < LEARNED or not at_chance or wilson(share * num, num, 3.0)[1] > train:
        return None
    evidence = (Evidence("eval/accuracy", share, 0.5, unit="share"), Evidence("accuracy", train, 0.5, unit="share"))
    summary = (
        f"{train:.0%} of training pairs are ranked right, and {share:.0%} of held-out ones over {NUM_EVALUATIONS} "
        "evaluations: chance"
    )
    step = first_update(view)
    strength = level_of(view, "rewards/length_correlation", NUM_LATE)
    if strength is None or abs(strength) < FOLLOWS_LENGTH:
        return Alarm("reward_model_overfit", "warn", "statistical", summary, evidence, (step, step))
    by_length = Evidence("rewards/length_correlation", strength, 0.0, FOLLOWS_LENGTH, "Pearson")
    summary += f"; scores go with length ({strength:.2f})"
    return Alarm("reward_model_length_only", "warn", "inferred", summary, (*evidence, by_length), (step, step))


RULES: tuple[Rule, ...] = (
    reward_model_order,
    reward_model_at_chance,
    reward_scores_drift,
    reward_model_overfit,
    learned_elsewhere,
)


def _is_better_held_out(view: RunView) -> bool:
    """Tell whether held-out comparisons prove that it is no chance, whatever the training rows say."""
    held_out, num = view.history.series.get("eval/accuracy"), number(view, "num_eval")
    if held_out is None or held_out.count < 2 or not num:
        return False
    return wilson(held_out.last * num, num, NUM_SIGMAS)[0] > 0.5
