"""The seam of a resumed run: rows after it must go on where rows before it stood."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import mean_of

NUM_AFTER = 5  # rows after the seam that are compared
NUM_BEFORE = 10
NUM_SIGMAS = 4.0
RATE_JUMP = 2.0
MATERIAL = 0.3  # of the level before
GRAVE_JUMP = 5.0  # nobody raises a learning rate so much on purpose
CONTINUOUS = (
    "nll",
    "preference_loss",
    "reward_loss",
    "kl",
    "entropy",
    "reward",
    "rewards/margins",
    "completions/mean_length",
    "update/relative_norm",
    "loss",
)

KINDS = (
    Kind(
        "resume_discontinuity",
        "§2",
        "The run did not go on where it stopped",
        (
            Cause(
                "learning_rate_jumped",
                "the schedule began anew, or the config's learning rate differs from the checkpoint's",
                2.0,
                "compare learning_rate in the rows before and after the resume",
                (Sign("the learning rate changed at the seam", lambda view: _rate_jump(view) is not None, 8.0, 0.2),),
            ),
            Cause(
                "optimizer_state_lost",
                "the optimiser began without its moments, so its first updates are too large",
                2.0,
                "look at update/relative_norm of the first updates: several times as large as before if this is it",
                (Sign("updates are twice as large", lambda view: _grew(view, "update/relative_norm"), 4.0, 0.5),),
            ),
            Cause(
                "data_order_lost",
                "the data began anew, so rows were seen twice",
                1.0,
                "compare the sample ids of the first rows after the resume with those of the run's start",
            ),
            Cause(
                "rng_not_restored",
                "random states were not restored",
                0.5,
                "add ExactResume and resume again: the first row is then the same every time",
            ),
        ),
    ),
)


def resume_discontinuity(view: RunView) -> Alarm | None:
    """Name a metric whose first rows after a resume lie outside the band of the rows before it."""
    history = view.history
    if not history.before or not 1 <= history.num_rows <= 4 * NUM_AFTER:
        return None
    jump = _rate_jump(view)
    found = [step for name in CONTINUOUS if (step := _step(view, name)) is not None]
    if jump is None and not found:
        return None
    evidence = (*found, *((jump,) if jump is not None else ()))
    text = ", ".join(f"{item.metric} {item.baseline:.3g} → {item.value:.3g}" for item in evidence)
    seam = (history.anchored_at, history.anchored_at + 1)
    summary = f"at the resume from update {seam[0]}: {text}"
    is_grave = bool(found) or (jump is not None and jump.value > GRAVE_JUMP * (jump.baseline or jump.value))
    return Alarm("resume_discontinuity", "warn" if is_grave else "info", "statistical", summary, evidence, seam)


RULES: tuple[Rule, ...] = (resume_discontinuity,)


def _step(view: RunView, name: str) -> Evidence | None:
    """Return what stepped at the seam, beyond the noise of its rows and by a size that matters."""
    before, series = view.history.before.get(name), view.history.series.get(name)
    if before is None or series is None or len(before) < NUM_BEFORE or series.count < NUM_AFTER:
        return None
    old, new = mean_of(before[-NUM_BEFORE:]), mean_of([value for _, value in series.trace[:NUM_AFTER]])
    scatter = math.hypot(old.error, old.error * math.sqrt(NUM_BEFORE / NUM_AFTER), new.error)
    limit = max(NUM_SIGMAS * scatter, MATERIAL * abs(old.value))
    if abs(new.value - old.value) <= limit:
        return None
    return Evidence(name, new.value, old.value, old.value + math.copysign(limit, new.value - old.value))


def _rate_jump(view: RunView) -> Evidence | None:
    before, series = view.history.before.get("learning_rate"), view.history.series.get("learning_rate")
    if not before or series is None or not series.trace or before[-1] <= 0:
        return None
    old, new = before[-1], series.trace[0][1]
    if old / RATE_JUMP < new < old * RATE_JUMP:
        return None
    return Evidence("learning_rate", new, old, old * RATE_JUMP)


def _grew(view: RunView, name: str) -> bool | None:
    before, series = view.history.before.get(name), view.history.series.get(name)
    return series.trace[0][1] > 2 * before[-1] if before and series is not None and series.trace else None
