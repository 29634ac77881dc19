"""Losses over given rows that rise above their start, or stay there."""

import math
from statistics import median

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    ALL_MASKED,
    BAD_DATA,
    HALF_PRECISION_OVERFLOW,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    NOTHING_TRAINABLE,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.history import Series
from lit_rlhf_callbacks.symptoms.objective import (
    OFFLINE,
    accuracy_name,
    known_start,
    loss_name,
    mean_of,
    num_updates,
    stage_of,
)
from lit_rlhf_callbacks.symptoms.readings import below, fact_above
from lit_rlhf_callbacks.symptoms.updates import barely_moved, path_length

NUM_LATE = 10
RISEN = 1.3  # times the loss at the start
MUCH_RISEN = 2.0
MATERIAL = 0.2  # of the loss at the start: a jump below it costs little
JUMPED = 2.0  # times the level that the run had come down to
NUM_BEFORE = 20
FLAT = 0.01  # of the loss at the start, on held-out rows, which are the same every time
MIN_UPDATES = 40
NUM_SAME = 10  # rows; logs that round to four digits repeat a value for some

_LABELS_SHUFFLED = Cause(
    "labels_shuffled",
    "the answers do not belong to their questions",
    1.0,
    "python -m lit_rlhf inspect CONFIG: read ten rows",
    (Sign("the weights move, and still nothing is learned", lambda view: barely_moved(view) is False, 4.0, 0.2),),
)
KINDS = (
    Kind(
        "loss_diverges",
        "A",
        "The loss rises above where it began",
        (
            likely(
                LEARNING_RATE_TOO_HIGH,
                6,
                Sign("an update moves the weights by more than 1 % of their norm", lambda view: _moves_fast(view), 3.0),
            ),
            likely(BAD_DATA, 1, Sign("it came in the middle of the run", lambda view: _fell_before(view), 3.0, 0.5)),
            likely(HALF_PRECISION_OVERFLOW, 1),
        ),
    ),
    Kind(
        "loss_flat",
        "A",
        "The loss does not fall",
        (
            likely(
                LEARNING_RATE_TOO_LOW,
                5,
                Sign("the weights have hardly moved", barely_moved, 3.0, 0.2),
                Sign("gradients are not zero", fact_above("optimizer.lr", 0.0), 1.0),
            ),
            likely(ALL_MASKED, 2, Sign("the loss is exactly 0", below("loss", 1e-12), 5.0, 0.3)),
            _LABELS_SHUFFLED,
            likely(NOTHING_TRAINABLE, 1),
        ),
        explained_by=("no_update", "updates_swallowed", "zero_gradient", "policy_not_moving", "labels_masked"),
    ),
)


def loss_diverges(view: RunView) -> Alarm | None:
    """Name a loss above its start, or one that jumped back up, where a second metric agrees."""
    name = loss_name(view)
    if name is None or stage_of(view) not in OFFLINE or view.history[name].count < NUM_LATE + 2:
        return None
    loss, known = view.history[name], known_start(view, name)
    if known is None or known <= 0:
        return None
    known = max(known, _eval_start(view, name))
    late = mean_of(loss.recent_values(NUM_LATE))
    is_above = late.value > RISEN * known and late.value - 3 * late.error > known
    if not is_above and not _has_jumped(loss, known):
        return None
    agreeing = _second_opinion(view, name)
    if not agreeing:
        return None
    window = (loss.recent[-NUM_LATE][0], loss.last_step)
    evidence = (Evidence(name, late.value, known, RISEN * known, "loss", window), *agreeing)
    how = f"it began at {known:.3g}" if is_above else f"it had come down to {_before(loss):.3g}"
    summary = f"{name} is {late.value:.3g} on average of the last {NUM_LATE} rows; {how}; {agreeing[0].metric} agrees"
    severity: Severity = "critical" if late.value > MUCH_RISEN * known else "warn"
    return Alarm("loss_diverges", severity, "statistical", summary, evidence)


def loss_flat(view: RunView) -> Alarm | None:
    """Name a loss that has not fallen where it should have: not at all, or not measurably after 40 updates.

    A warning needs weights that hardly moved, too: a policy that moves and does not gain may know its rows already.
    """
    name = loss_name(view)
    if name is None or stage_of(view) not in OFFLINE or view.history[name].count < NUM_SAME:
        return None
    loss = view.history[name]
    values = loss.recent_values(NUM_SAME)
    if min(values) == max(values) == loss.start[0] == loss.start[-1]:
        evidence = (Evidence(name, values[-1], loss.start[0], unit="loss"),)
        step = loss.trace[0][0]
        summary = f"{name} has been exactly {values[-1]:.6g} since the first update"
        return Alarm("loss_flat", "critical", "exact", summary, evidence, (step, step))
    gain = _gain(view, name)
    if gain is None:
        return None
    stayed = barely_moved(view)
    if not stayed and stage_of(view) == "reward_model":
        return None  # some heads wander for a hundred updates before they learn
    path = path_length(view)
    extra = (Evidence("update/relative_norm", path, unit="summed over updates"),) if path is not None else ()
    summary = (
        f"after {num_updates(view):.0f} updates {gain.metric} is {gain.value:.4g}; it began at {gain.baseline:.4g}"
    )
    step = loss.trace[0][0]
    return Alarm("loss_flat", "warn" if stayed else "info", "inferred", summary, (gain, *extra), (step, step))


RULES: tuple[Rule, ...] = (loss_diverges, loss_flat)


def _has_jumped(loss: Series, known: float) -> bool:
    """Tell whether each of the last rows lies far above what the run had come down to, by a size that matters."""
    if loss.count < NUM_LATE + NUM_BEFORE:
        return False
    late = loss.recent_values(NUM_LATE)
    return median(late) > MATERIAL * known and min(late) > JUMPED * _before(loss)


def _before(loss: Series) -> float:
    """Return the level that a loss had come down to: the lowest tenth of its trace."""
    values = sorted(value for _, value in loss.trace)
    return values[len(values) // 10]


def _second_opinion(view: RunView, name: str) -> tuple[Evidence, ...]:
    """Return what else says that the run became worse: held-out loss, gradients, accuracy."""
    history, found = view.history, []
    held_out = f"eval/{name}"
    if history.has(held_out):
        began, now = known_start(view, held_out), history[held_out].last
        if began is not None and history[held_out].count > 1 and now > 1.1 * began:
            found.append(Evidence(held_out, now, began, 1.1 * began, "loss"))
    if history.has("grad_norm"):
        norms = history["grad_norm"]
        now, began = norms.recent_median(NUM_LATE), norms.start[0]
        if now > 2 * min(began, median(value for _, value in norms.trace)):
            found.append(Evidence("grad_norm", now, began, 2 * began, "norm"))
    accuracy = accuracy_name(view)
    if accuracy is not None:
        late, began = mean_of(history[accuracy].recent_values(NUM_LATE)), history[accuracy].start[0]
        if late.value + 2 * late.error < began - 0.05:
            found.append(Evidence(accuracy, late.value, began, unit="share"))
    return tuple(found)


def _gain(view: RunView, name: str) -> Evidence | None:
    """Return the loss and where it began if it has not fallen, measured as finely as the log allows."""
    loss, held_out = view.history[name], f"eval/{name}"
    if num_updates(view) < MIN_UPDATES or not loss.is_armed(NUM_BEFORE):
        return None
    if view.history.has(held_out, num_rows=2) and view.history[held_out].last_step >= MIN_UPDATES:
        began, now = view.history[held_out].start[0], view.history[held_out].last
        return (
            Evidence(held_out, now, began, began - FLAT * abs(began)) if abs(began - now) < FLAT * abs(began) else None
        )
    first, late = mean_of(loss.baseline), mean_of(loss.recent_values(NUM_BEFORE))
    error = math.hypot(first.error, late.error)
    is_flat = first.value - late.value < max(2 * error, FLAT * abs(first.value))
    return Evidence(name, late.value, first.value) if is_flat and 2.5 * error < 0.1 * abs(first.value) else None


def _eval_start(view: RunView, name: str) -> float:
    held_out = view.history.series.get(f"eval/{name}")
    return held_out.start[0] if held_out is not None and held_out.start else 0.0


def _moves_fast(view: RunView) -> bool | None:
    name = "update/relative_norm"
    return view.history[name].recent_median(3) > 0.01 if view.history.has(name) else None


def _fell_before(view: RunView) -> bool | None:
    name = loss_name(view)
    if name is None or view.history[name].count < NUM_LATE + NUM_BEFORE:
        return None
    return _before(view.history[name]) < 0.8 * view.history[name].start[0]
