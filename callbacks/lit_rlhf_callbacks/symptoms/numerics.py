"""Numbers that break: not a number, gradients that are zero, vanish or jump."""

import math
from statistics import median

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    ALL_MASKED,
    BAD_DATA,
    BAD_REWARD,
    HALF_PRECISION_OVERFLOW,
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    NOTHING_TRAINABLE,
    ZERO_CONTRAST,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.history import Series
from lit_rlhf_callbacks.symptoms.objective import loss_name, stage_of
from lit_rlhf_callbacks.symptoms.readings import below, fact_is, rose
from lit_rlhf_callbacks.symptoms.robust import NUM_ROWS, shift

WATCHED = (
    "loss",
    "policy_loss",
    "nll",
    "preference_loss",
    "reward_loss",
    "grad_norm",
    "kl",
    "entropy",
    "logps/chosen",
    "logps/rejected",
    "rewards/chosen",
    "rewards/rejected",
    "reward",
)
NUM_ZERO = 3  # rows
NUM_ZERO_WITHOUT_CONTRAST = 10  # a policy that solves its task has no contrast for some rows, too
SPARSE = 2.0  # updates per row
NUM_LIVE = 20  # rows with signal before a spike can be told
SPIKE = 10.0  # times the median of rows with signal
NUM_SPIKES = 3
HUGE_SPIKE = 100.0
NUM_HUGE = 2
VANISHED = math.log(20)
NUM_VANISHED = 15  # rows


def _came_at_once(view: RunView) -> bool:
    """Tell whether the first bad value came within the first three updates."""
    firsts = [series.first_bad for series in view.history.series.values() if series.first_bad is not None]
    return bool(firsts) and min(firsts) <= (view.history.first_step or 0) + 3


def _is_calm_between(view: RunView) -> bool | None:
    """Tell whether half of the gradients lie below twice the start's: spikes apart, nothing grew."""
    if not view.history.has("grad_norm"):
        return None
    return view.history["grad_norm"].recent_median(NUM_LIVE) < 2 * median(view.history["grad_norm"].start)


_ORPO_LOG_ODDS = Cause(
    "orpo_log_odds",
    "log(1 − p) of a certain completion is minus infinity",
    0.5,
    "look at logps/chosen before the onset: near 0 if this is it; compare means over tokens, cut below 0",
    (Sign("the loss is ORPO's", fact_is("algorithm", "ORPO"), 10.0, 0.02),),
)
_BAD_BATCH = Cause(
    "bad_batch",
    "single batches hold broken rows, or weigh far more than the others",
    2.0,
    "python -m lit_rlhf inspect --config CONFIG, and read the rows of the updates that jumped",
    (Sign("between the spikes gradients are what they were", _is_calm_between, 2.0, 0.5),),
)
_LENGTH_OUTLIER = Cause(
    "length_outlier",
    "single sequences are far longer than the rest",
    1.0,
    "look at completions/max_length at those updates; set data.max_length",
    (Sign("the longest completion has doubled", rose("completions/max_length", times=2.0), 2.0),),
)
_SATURATED_LOSS = Cause(
    "saturated_loss",
    "the loss is at its floor: there is nothing left to learn from these rows",
    1.0,
    "look at accuracy and loss: near 1 and near 0 if this is it",
    (Sign("the loss is below a hundredth", below("loss", 0.01), 4.0, 0.2),),
)

KINDS = (
    Kind(
        "not_a_number",
        "A",
        "A metric is not a number",
        (
            likely(
                LEARNING_RATE_TOO_HIGH,
                4,
                Sign("gradients grew before it", rose("grad_norm", times=2.0), 3.0, 0.3),
                Sign("other metrics were still near their start", _came_at_once, 0.3),
            ),
            likely(BAD_REWARD, 1, Sign("this run has no reward function", lambda view: stage_of(view) != "rl", 0.01)),
            likely(HALF_PRECISION_OVERFLOW, 3),
            _ORPO_LOG_ODDS,
            likely(BAD_DATA, 1.5, Sign("it came at once", _came_at_once, 2.0)),
        ),
        explained_by=("orpo_numerics", "loss_diverges", "kl_explosion"),
    ),
    Kind(
        "zero_gradient",
        "F",
        "The gradient is exactly zero",
        (
            likely(ZERO_CONTRAST, 3, Sign("this is not RL", lambda view: stage_of(view) != "rl", 0.02)),
            likely(NOTHING_TRAINABLE, 1),
            likely(
                ALL_MASKED,
                3,
                Sign("the loss is exactly 0", below("loss", 1e-12), 2.0),
                Sign("this is RL", lambda view: stage_of(view) == "rl", 0.1),
            ),
        ),
        explained_by=(
            "dead_reward",
            "zero_contrast",
            "all_truncated",
            "labels_masked",
            "identical_pairs",
            "clip_saturation",
        ),
    ),
    Kind(
        "gradient_spikes",
        "A",
        "Single gradients are far above the rest",
        (likely(LEARNING_RATE_TOO_HIGH, 2), _BAD_BATCH, _LENGTH_OUTLIER),
        explained_by=("not_a_number", "loss_diverges", "kl_explosion", "zero_contrast", "entropy_collapse"),
    ),
    Kind(
        "gradient_vanishing",
        "A",
        "The gradient has all but vanished",
        (likely(ZERO_CONTRAST, 3), _SATURATED_LOSS, likely(LEARNING_RATE_TOO_LOW, 0.5)),
        explained_by=("zero_contrast", "entropy_collapse", "dead_reward", "loss_diverges", "all_truncated"),
    ),
)


def not_a_number(view: RunView) -> Alarm | None:
    """Name the first metric that was NaN or infinite; it needs no history."""
    series = view.history.series
    broken = [name for name in WATCHED if name in series and series[name].num_bad]
    if broken == ["grad_norm"] and str(view.facts.get("trainer.precision", "")).startswith("16"):
        return None  # fp16 looks for its loss scale by overflowing; such steps are skipped
    if not broken:
        return None
    first = min(broken, key=lambda name: series[name].first_bad or 0)
    step, now = series[first].first_bad or 0, view.history.step
    is_over = all(series[name].count > 0 and series[name].last_step == now for name in broken)
    after = f"finite again since, {series[first].num_bad} such rows in all" if is_over else "and has not come back"
    evidence = tuple(Evidence(name, series[name].num_bad, unit="bad rows") for name in [first, *broken])
    summary = f"{', '.join(broken)} not a number, {first} first, at update {step}; {after}"
    return Alarm("not_a_number", "warn" if is_over else "critical", "exact", summary, evidence, (step, step))


def zero_gradient(view: RunView) -> Alarm | None:
    """Name gradients of exactly zero; in RL without contrast only where that lasts."""
    if not view.history.has("grad_norm", num_rows=NUM_ZERO) or view.history["grad_norm"].last != 0.0:
        return None
    history = view.history
    dead = history["frac_reward_zero_std"].last if history.has("frac_reward_zero_std") else 0.0
    is_sparse = history.stride() >= SPARSE  # then the gradient is one update's, and the share a mean over several
    without_contrast = dead >= 1.0 or (is_sparse and dead > 0.0) or _is_ungrouped_and_alike(view)
    num = NUM_ZERO_WITHOUT_CONTRAST if without_contrast else NUM_ZERO
    points = list(history["grad_norm"].recent)[-num:]
    if len(points) < num or any(value != 0.0 for _, value in points):
        return None
    evidence = (Evidence("grad_norm", 0.0, unit="norm", window=(points[0][0], points[-1][0])),)
    summary = f"the gradient has been exactly zero for {num} rows: nothing is learned"
    return Alarm("zero_gradient", "critical", "exact", summary, evidence, (points[0][0], points[0][0]))


def _is_ungrouped_and_alike(view: RunView) -> bool:
    """Tell whether a run without groups has no advantage in its newest row: with few completions, by chance."""
    series = view.history.series
    spread = series.get("advantages/std")
    return "frac_reward_zero_std" not in series and spread is not None and spread.count > 0 and spread.last == 0.0


def gradient_spikes(view: RunView) -> Alarm | None:
    """Name gradients far above those of other rows that carry signal; a warning only where the run got worse."""
    history = view.history
    if not history.has("grad_norm", num_rows=NUM_LIVE):
        return None
    norms = history["grad_norm"]
    if max(value for _, value in norms.recent) <= SPIKE * norms.recent_median(NUM_LIVE) * 0.5:
        return None
    live = _with_signal(view)
    if len(live) < NUM_LIVE:
        return None
    center = median(value for _, value in live)
    spikes = [(step, value) for step, value in live if value > SPIKE * center]
    num_huge = sum(value > HUGE_SPIKE * center for _, value in spikes)
    if len(spikes) < NUM_SPIKES and num_huge < NUM_HUGE:
        return None
    step, largest = max(spikes, key=lambda point: point[1])
    worse = _is_worse(view)
    evidence = (Evidence("grad_norm", largest, center, SPIKE * center, "norm", (live[0][0], live[-1][0])), *worse)
    damage = "; the run has become worse since" if worse else "; no harm is visible"
    summary = (
        f"{len(spikes)} of {len(live)} gradients were more than {SPIKE:.0f} times the median of rows with signal, the "
        f"largest {largest / center:.0f} times at update {step}{damage}"
    )
    onset = (spikes[0][0], spikes[0][0])
    is_grave = bool(worse) or num_huge >= NUM_HUGE
    return Alarm("gradient_spikes", "warn" if is_grave else "info", "statistical", summary, evidence, onset)


def gradient_vanishing(view: RunView) -> Alarm | None:
    """Name a gradient that fell to a twentieth while the run has not become better."""
    history = view.history
    if not history.has("grad_norm", num_rows=NUM_LIVE):
        return None
    norms = history["grad_norm"]
    if not norms.baseline or norms.recent_median(NUM_VANISHED) > 0.1 * norms.baseline_median():
        return None  # said cheaply, in nearly every row
    fall = shift(norms, "down", scale="log", min_size=VANISHED)
    if fall is None or norms.recent_median(NUM_ROWS) == 0.0 or _is_better(view):
        return None
    evidence = (Evidence("grad_norm", fall.value, fall.baseline, fall.threshold, "norm", fall.window),)
    summary = f"the gradient fell from {fall.baseline:.3g} to {fall.value:.3g} and the run has not become better"
    return Alarm("gradient_vanishing", "warn", "statistical", summary, evidence)


def _with_signal(view: RunView) -> list[tuple[int, float]]:
    """Return the recent gradients of updates in which some group had contrast."""
    points = list(view.history["grad_norm"].recent)
    if "frac_reward_zero_std" in view.history.series:
        dead = {step for step, share in view.history["frac_reward_zero_std"].recent if share >= 1.0}
        points = [point for point in points if point[0] not in dead]
    return [point for point in points if point[1] > 0.0]


def _is_worse(view: RunView) -> tuple[Evidence, ...]:
    name = loss_name(view)
    if stage_of(view) == "rl" and view.history.has("reward"):
        reward = view.history["reward"]
        found, name = shift(reward, "down", min_size=_material(reward)), "reward"
    elif name is not None:
        found = shift(view.history[name], "up", scale="log", min_size=math.log(1.3))
    else:
        return ()
    return (Evidence(name, found.value, found.baseline, found.threshold, window=found.window),) if found else ()


def _is_better(view: RunView) -> bool:
    name = loss_name(view)
    if name is not None:
        loss = view.history[name]
        return loss.recent_median(NUM_VANISHED) < 0.7 * loss.baseline_median() if loss.baseline else False
    reward = view.history.series.get("reward")
    return reward is not None and shift(reward, "up", min_size=_material(reward)) is not None


def _material(reward: Series) -> float:
    """Return a tenth of what a reward was: rewards have no unit."""
    return 0.1 * abs(reward.baseline_median()) + 1e-6 if reward.baseline else math.inf


RULES: tuple[Rule, ...] = (not_a_number, zero_gradient, gradient_spikes, gradient_vanishing)
