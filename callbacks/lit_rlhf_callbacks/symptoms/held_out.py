"""Held-out losses that turn up while training goes on falling."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import LEARNING_RATE_TOO_HIGH, likely
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import loss_name, stage_of
from lit_rlhf_callbacks.symptoms.readings import fact_below, number

NUM_LATE = 10
TURNED = 0.05  # of the lowest held-out loss
LOST_AGAIN = 0.1  # of what the held-out loss had gained since the start
NUM_TURNED = 2  # evaluations


def _passes_above(view: RunView, bound: float) -> bool | None:
    rows, num = number(view, "window.num_completions"), number(view, "num_train")
    return rows * view.history.step / num > bound if rows and num else None


TOO_MANY_EPOCHS = Cause(
    "too_many_epochs",
    "the run has seen its rows too often",
    3.0,
    "compare global_step × rows per update with num_train: stop at the evaluation with the lowest loss",
    (Sign("max_steps covers the data more than three times", lambda view: _passes_above(view, 3.0), 3.0, 0.5),),
)
TOO_LITTLE_DATA = Cause(
    "too_little_data",
    "there are too few rows",
    2.0,
    "look at num_train in run.json; train on half of the rows: the turn comes earlier if this is it",
    (Sign("there are fewer than 1000 rows", fact_below("num_train", 1000), 3.0, 0.5),),
)

KINDS = (
    Kind(
        "held_out_overfit",
        "A",
        "The held-out loss has turned up while the training loss falls",
        (TOO_MANY_EPOCHS, TOO_LITTLE_DATA, likely(LEARNING_RATE_TOO_HIGH, 1)),
        explained_by=("loss_diverges", "pairs_swapped", "labels_masked"),
    ),
)


def held_out_overfit(view: RunView) -> Alarm | None:
    """Name a held-out loss that lies above its lowest at two evaluations in a row, while training goes on falling."""
    turn = turned_up(view)
    if turn is None or stage_of(view) == "reward_model":
        return None
    return Alarm("held_out_overfit", "warn", "statistical", turn[0], turn[1], turn[2])


RULES: tuple[Rule, ...] = (held_out_overfit,)


def turned_up(view: RunView) -> tuple[str, tuple[Evidence, ...], tuple[int, int]] | None:
    """Return summary, evidence and onset of a held-out loss that turned up by more than its noise."""
    name, train = loss_name(view, "eval/"), loss_name(view)
    if name is None or train is None or not view.history.has(name, num_rows=NUM_TURNED + 1):
        return None
    points = list(view.history[name].recent)
    step, lowest = min(points, key=lambda point: point[1])
    later = [value for at, value in points if at > step]
    if len(later) < NUM_TURNED or lowest <= 0:
        return None
    gained = max(0.0, view.history[name].start[0] - lowest)
    limit = lowest + max(3 * _eval_error(view, name, lowest), TURNED * lowest, LOST_AGAIN * gained)
    if any(value <= limit for value in later[-NUM_TURNED:]):
        return None
    trace = view.history[train].trace
    then = [value for at, value in trace if at <= step][-NUM_LATE:] or view.history[train].start
    now = view.history[train].recent_values(NUM_LATE)
    if not then or sum(now) / len(now) >= (1 - TURNED) * sum(then) / len(then):
        return None
    evidence = (
        Evidence(name, later[-1], lowest, limit, "loss", (step, points[-1][0])),
        Evidence(train, sum(now) / len(now), sum(then) / len(then), unit="loss"),
    )
    summary = f"{name} was lowest ({lowest:.3g}) at update {step} and is {later[-1]:.3g} now, while {train} fell"
    return summary, evidence, (step, points[-NUM_TURNED][0])


def _eval_error(view: RunView, name: str, value: float) -> float:
    """Return a held-out loss's standard error: per item it scatters about as much as it measures."""
    tokens = view.history.series.get("eval/num_tokens")
    num = tokens.last if tokens is not None and tokens.count and name == "eval/nll" else number(view, "num_eval")
    return abs(value) / math.sqrt(num) if num else 0.0
