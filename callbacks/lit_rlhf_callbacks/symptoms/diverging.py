"""Losses over given rows that rise above where they began, or jump back up."""

from statistics import median

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    BAD_DATA,
    HALF_PRECISION_OVERFLOW,
    LEARNING_RATE_TOO_HIGH,
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
    stage_of,
)
from lit_rlhf_callbacks.symptoms.updates import barely_moved

NUM_LATE = 10
NUM_BEFORE = 20
RISEN = 1.3  # times the loss at the start
MUCH_RISEN = 2.0
MATERIAL = 0.2  # of the loss at the start: a jump below it costs little
JUMPED = 2.0  # times the level that the run had come down to
MAX_LOOKED_AT = 64  # points of a trace
UNLIKE = 3.0  # times the held-out loss of the same weights

LABELS_SHUFFLED = Cause(
    "labels_shuffled",
    "the answers do not belong to their questions",
    1.0,
    "python -m lit_rlhf inspect --config CONFIG: read ten rows",
    (Sign("the weights move, and still nothing is learned", lambda view: barely_moved(view) is False, 4.0, 0.2),),
)
_LOSS_SIGN = Cause(
    "loss_sign",
    "the loss, or its gradient, has the wrong sign: training climbs",
    1.5,
    "compare the log-probs of trained rows before and after one update: they fall if this is it",
    (
        Sign("an update is of a usual size", lambda view: _moves_fast(view) is False, 3.0, 0.3),
        Sign("the loss has risen since the first updates", lambda view: _fell_before(view) is False, 1.5, 0.2),
        Sign("the learning rate has jumped", lambda view: _rate_jumped(view), 0.1),
        Sign("training rows do not look like held-out rows", lambda view: _rows_differ(view), 0.2),
    ),
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
                Sign("an update moves more than 1 % of the weights' norm", lambda view: _moves_fast(view), 3.0, 0.3),
                Sign("the learning rate has jumped", lambda view: _rate_jumped(view), 5.0),
                Sign("training rows do not look like held-out rows", lambda view: _rows_differ(view), 0.3),
            ),
            _LOSS_SIGN,
            likely(
                BAD_DATA,
                1,
                Sign("it came in the middle of the run", lambda view: _fell_before(view), 3.0, 0.5),
                Sign("training rows do not look like held-out rows", lambda view: _rows_differ(view), 8.0, 0.5),
            ),
            likely(
                LABELS_SHUFFLED,
                0.15,
                Sign("training rows do not look like held-out rows", lambda view: _rows_differ(view), 8.0, 0.5),
            ),
            likely(HALF_PRECISION_OVERFLOW, 1),
        ),
        explained_by=("sign_flipped", "pairs_swapped", "reward_model_order", "labels_masked"),
    ),
)


def loss_diverges(view: RunView) -> Alarm | None:
    """Name a loss above its start, or one that jumped back up, where a second metric agrees."""
    name = loss_name(view)
    if name is None or stage_of(view) not in OFFLINE or not view.history.has(name, num_rows=NUM_LATE + 2):
        return None
    loss, known = view.history[name], known_start(view, name)
    if known is None or known <= 0:
        return None
    held_out = _held_out_rises(view, name)
    if held_out is not None:
        return held_out
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


RULES: tuple[Rule, ...] = (loss_diverges,)


def _has_jumped(loss: Series, known: float) -> bool:
    """Tell whether each of the last rows lies far above what the run had come down to, by a size that matters."""
    if loss.count < NUM_LATE + NUM_BEFORE:
        return False
    lowest = min(loss.recent_values(NUM_LATE))
    return loss.recent_median(NUM_LATE) > MATERIAL * known and lowest > JUMPED * _before(loss)


def _before(loss: Series) -> float:
    """Return the level that a loss had come down to: the lowest tenth of its trace."""
    values = sorted([value for _, value in loss.trace[:: 1 + len(loss.trace) // MAX_LOOKED_AT]])
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


def _held_out_rises(view: RunView, name: str) -> Alarm | None:
    """Name a held-out loss far above the start policy's where training rows never looked like held-out ones."""
    held_out = f"eval/{name}"
    if not _rows_differ(view) or not view.history.has(held_out, num_rows=2):
        return None
    losses = view.history[held_out]
    began, last = losses.start[0], losses.recent_values(2)
    if not (last[-1] > MUCH_RISEN * began or min(last) > RISEN * began):
        return None
    first = view.history[name].start[0]
    evidence = (Evidence(held_out, last[-1], began, RISEN * began, "loss"), Evidence(name, first, began, unit="loss"))
    summary = (
        f"{held_out} rose from {began:.3g} to {last[-1]:.3g}, and training rows began at {first:.3g}: they are other "
        "rows than what the policy is asked"
    )
    step = view.history[name].trace[0][0]
    return Alarm("loss_diverges", "warn", "statistical", summary, evidence, (step, step))


def _rows_differ(view: RunView) -> bool | None:
    """Tell whether the first training loss was three times the held-out one of the same weights."""
    name = loss_name(view)
    if name is None or stage_of(view) != "sft" or not view.history.has(f"eval/{name}"):
        return None
    held_out = view.history[f"eval/{name}"]
    is_same_policy = all(
        series.first_step is not None and series.first_step <= 1 for series in (held_out, view.history[name])
    )
    return view.history[name].start[0] > UNLIKE * held_out.start[0] if is_same_policy else None


def _rate_jumped(view: RunView) -> bool | None:
    """Tell whether the learning rate is now three times what it was after warm-up."""
    rates = view.history.series.get("learning_rate")
    if rates is None or not rates.baseline:
        return None
    return rates.last > 3 * rates.baseline_median()


def _eval_start(view: RunView, name: str) -> float:
    held_out = view.history.series.get(f"eval/{name}")
    return held_out.start[0] if held_out is not None and held_out.start else 0.0


def _moves_fast(view: RunView) -> bool | None:
    name = "update/relative_norm"
    return view.history[name].last > 0.01 if view.history.has(name) else None


def _fell_before(view: RunView) -> bool | None:
    name = loss_name(view)
    if name is None or view.history[name].count < NUM_LATE:
        return None
    return _before(view.history[name]) < 0.8 * view.history[name].start[0]
