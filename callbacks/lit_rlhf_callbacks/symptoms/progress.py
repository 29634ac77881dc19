"""Whether a run gains anything, whether what it gains can be told from noise, and what it loses on the way."""

import math

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    NO_KL,
    TASK_TOO_HARD,
    ZERO_CONTRAST,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.objective import first_update, mean_of, num_updates, stage_of
from lit_rlhf_callbacks.symptoms.readings import below, number, rose
from lit_rlhf_callbacks.symptoms.updates import barely_moved

NUM_LATE = 20
MIN_UPDATES = 60
PATIENCE = 100  # updates, where nobody says how long the run is
HALF = 0.5  # of the run
SMALLEST_GAIN = 0.05  # of the range of a reward between 0 and 1; a plateau is told only where this would show
SOLVED = 0.9
LOST = 0.05  # share of a sentinel set's items
CLIFF = 0.15
NEAR_END = 0.9

_NOISE_HIDES_GAIN = Cause(
    "noise_hides_gain",
    "there is a gain, and the noise of a row is larger",
    1.0,
    "compare two evaluations of at least 256 samples, with their standard errors",
)
_TEMPLATE_BROKEN = Cause(
    "template_broken",
    "training taught another format than the questions are asked in",
    1.0,
    "look at the same panel prompt before and after in samples.jsonl",
)
_REWARD_HACKING = Cause(
    "reward_hacking",
    "the policy serves the reward in a way that costs it what it knew",
    1.5,
    "read the best rewarded completions next to those of the start",
    (
        Sign("this run has no reward", lambda view: stage_of(view) != "rl", 0.02),
        Sign("reward has risen", rose("reward", times=1.3), 2.0, 0.5),
    ),
)
_CHANCE = Cause(
    "noise_hides_gain",
    "the difference is no larger than the error of an evaluation",
    1.0,
    "evaluate start and end on more prompts (data.num_eval), with several seeds",
)
_ROOTS = (
    "dead_reward",
    "reward_function_broken",
    "sign_flipped",
    "not_a_number",
    "no_update",
    "updates_swallowed",
    "policy_not_moving",
    "zero_gradient",
    "zero_contrast",
    "all_truncated",
    "truncation",
    "entropy_collapse",
    "entropy_explosion",
    "kl_explosion",
    "empty_completions",
    "repetition",
    "never_stops",
    "reward_falls",
    "clip_saturation",
)

KINDS = (
    Kind(
        "plateau",
        "§5",
        "The reward has not risen",
        (
            likely(ZERO_CONTRAST, 3),
            likely(LEARNING_RATE_TOO_LOW, 3, Sign("the policy has hardly moved", barely_moved, 4.0, 0.2)),
            likely(TASK_TOO_HARD, 2, Sign("fewer than a tenth of the answers are right", below("reward", 0.1), 3.0)),
            _NOISE_HIDES_GAIN,
        ),
        explained_by=_ROOTS,
    ),
    Kind(
        "sentinel_cliff",
        "§8",
        "The policy loses what it knew at the start",
        (likely(LEARNING_RATE_TOO_HIGH, 4), likely(NO_KL, 1), _TEMPLATE_BROKEN, _REWARD_HACKING),
        explained_by=(
            "not_a_number",
            "loss_diverges",
            "kl_explosion",
            "entropy_collapse",
            "entropy_explosion",
            "sign_flipped",
            "reward_hacking",
            "displacement",
        ),
    ),
    Kind("eval_within_noise", "§5", "The gain is within the noise of the evaluation", (_CHANCE,)),
    Kind("lucky_checkpoint", "§5", "The best evaluation may be luck", (_CHANCE,)),
)


def plateau(view: RunView) -> Alarm | None:
    """Name a reward that has not risen since the start, where a rise that matters would have shown.

    A reward that rose and then stayed is a run that has converged, and no fault.
    """
    if stage_of(view) != "rl" or not view.history.has("reward", num_rows=2 * NUM_LATE) or not _is_patient(view):
        return None
    reward = view.history["reward"]
    if not reward.is_armed(NUM_LATE):
        return None
    first, late = mean_of(reward.baseline), mean_of(reward.recent_values(NUM_LATE))
    error = math.hypot(first.error, late.error)
    if late.value - first.value > 2 * error or _gains_held_out(view):
        return None
    is_bounded = all(0.0 <= value <= 1.0 for _, value in reward.recent)
    smallest = SMALLEST_GAIN if is_bounded else 0.25 * _spread(view)
    if (is_bounded and late.value > SOLVED) or 2.5 * error > smallest:
        return None
    evidence = (Evidence("reward", late.value, first.value, first.value + smallest, "reward"),)
    summary = (
        f"reward is {late.value:.3g} ± {late.error:.2g} after {num_updates(view):.0f} updates, first {first.value:.3g} "
        f"± {first.error:.2g} at the start; a gain of {smallest:.2g} would have shown"
    )
    step = first_update(view)
    return Alarm("plateau", "warn", "statistical", summary, evidence, (step, step))


def sentinel_cliff(view: RunView) -> Alarm | None:
    """Name a sentinel set that lost items beyond its sampling error, twice, or far beyond it, once."""
    found: list[tuple[float, str]] = []
    for name, series in view.history.series.items():
        if not (name.startswith("sentinel/") and name.endswith("/sigma") and series.count):
            continue
        change = view.history.series.get(name.removesuffix("sigma") + "change")
        lost = -change.last if change is not None and change.count else 0.0
        is_cliff = lost > CLIFF and series.last < -4
        is_drop = lost > LOST and series.count > 1 and max(series.recent_values(2)) < -3
        if is_cliff or is_drop:
            found.append((lost, name.removeprefix("sentinel/").removesuffix("/sigma")))
    if not found:
        return None
    lost, name = max(found)
    sigma = view.history[f"sentinel/{name}/sigma"].last
    severity: Severity = "critical" if lost > CLIFF else "warn"
    evidence = (Evidence(f"sentinel/{name}/change", -lost, 0.0, -LOST, "share"),)
    summary = f"{name}: {lost:.0%} of the items known at the start are lost ({sigma:.1f} standard errors)"
    return Alarm("sentinel_cliff", severity, "statistical", summary, evidence)


def eval_within_noise(view: RunView) -> Alarm | None:
    """Say near the end that held-out pass@1 moved by less than two standard errors of the difference."""
    if not view.history.has("eval/pass_at_1", "eval/pass_at_1_se", num_rows=3) or not _is_near_end(view):
        return None
    accuracy, error = view.history["eval/pass_at_1"], view.history["eval/pass_at_1_se"]
    change, noise = accuracy.last - accuracy.start[0], math.hypot(error.last, error.start[0])
    if abs(change) > 2 * noise or accuracy.last > SOLVED:
        return None
    evidence = (Evidence("eval/pass_at_1", accuracy.last, accuracy.start[0], accuracy.start[0] + 2 * noise, "share"),)
    summary = f"held-out pass@1 changed by {change:+.3f}, and the error of that difference is {noise:.3f}"
    step = accuracy.last_step
    return Alarm("eval_within_noise", "info", "statistical", summary, evidence, (step, step))


def lucky_checkpoint(view: RunView) -> Alarm | None:
    """Say near the end that the best of many evaluations lies above its neighbours by no more than luck gives."""
    if not view.history.has("eval/pass_at_1", "eval/pass_at_1_se", num_rows=4) or not _is_near_end(view):
        return None
    points = [value for _, value in view.history["eval/pass_at_1"].recent]
    error = view.history["eval/pass_at_1_se"].last
    place = max(range(len(points)), key=lambda index: points[index])
    neighbours = points[max(0, place - 1) : place] + points[place + 1 : place + 2]
    excess = points[place] - sum(neighbours) / len(neighbours)
    luck = error * math.sqrt(2 * math.log(len(points)))
    if place == 0 or not error < excess <= 2 * luck:
        return None
    step = view.history["eval/pass_at_1"].recent[place][0]
    evidence = (Evidence("eval/pass_at_1", points[place], points[place] - excess, unit="share", window=(step, step)),)
    summary = (
        f"the best of {len(points)} evaluations ({points[place]:.3f}, update {step}) lies {excess:.3f} above its "
        f"neighbours; chance alone gives about {luck:.3f}"
    )
    return Alarm("lucky_checkpoint", "info", "statistical", summary, evidence, (step, step))


RULES: tuple[Rule, ...] = (plateau, sentinel_cliff, eval_within_noise, lucky_checkpoint)


def _is_patient(view: RunView) -> bool:
    planned, updates = number(view, "trainer.max_steps"), num_updates(view)
    return updates >= (max(MIN_UPDATES, HALF * planned) if planned and planned > 0 else PATIENCE)


def _is_near_end(view: RunView) -> bool:
    planned = number(view, "trainer.max_steps")
    return planned is not None and planned > 0 and view.history.step >= NEAR_END * planned


def _spread(view: RunView) -> float:
    """Return how far rewards of one prompt lie apart at the start: the scale on which a gain is large or small."""
    return view.history["reward_std"].start[0] if view.history.has("reward_std") else 0.0


def _gains_held_out(view: RunView) -> bool:
    if not view.history.has("eval/pass_at_1", num_rows=2):
        return False
    accuracy, error = view.history["eval/pass_at_1"], view.history.series.get("eval/pass_at_1_se")
    noise = error.last if error is not None and error.count else 0.03
    return accuracy.last - accuracy.start[0] > 2 * noise
