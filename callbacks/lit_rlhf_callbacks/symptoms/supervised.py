"""Losses over given rows that stay where they began."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    ALL_MASKED,
    LEARNING_RATE_TOO_LOW,
    NOTHING_TRAINABLE,
    likely,
)
from lit_rlhf_callbacks.symptoms.diverging import LABELS_SHUFFLED
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import (
    OFFLINE,
    loss_name,
    mean_of,
    num_updates,
    stage_of,
)
from lit_rlhf_callbacks.symptoms.readings import below
from lit_rlhf_callbacks.symptoms.updates import barely_moved, path_length

NUM_BEFORE = 20
FLAT = 0.01  # of the loss at the start, on held-out rows, which are the same every time
FLAT_AT_REST = 0.05  # the same where the weights hardly moved, too
TELLING = 0.1  # of the loss: a fall of this size must show through the noise of its rows
TELLING_AT_REST = 0.5
MIN_UPDATES = 40
NUM_SAME = 10  # rows; logs that round to four digits repeat a value for some

KINDS = (
    Kind(
        "loss_flat",
        "A",
        "The loss does not fall",
        (
            likely(
                LEARNING_RATE_TOO_LOW,
                5,
                Sign("the weights have hardly moved", barely_moved, 3.0, 0.2),
            ),
            likely(ALL_MASKED, 2, Sign("the loss is exactly 0", below("loss", 1e-12), 5.0, 0.3)),
            LABELS_SHUFFLED,
            likely(NOTHING_TRAINABLE, 1),
        ),
        explained_by=(
            "no_update",
            "updates_swallowed",
            "zero_gradient",
            "identical_pairs",
            "policy_not_moving",
            "labels_masked",
        ),
    ),
)


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


RULES: tuple[Rule, ...] = (loss_flat,)


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
    finest = (TELLING_AT_REST if barely_moved(view) else TELLING) * abs(first.value)
    return Evidence(name, late.value, first.value) if is_flat and 2.5 * error < finest else None
