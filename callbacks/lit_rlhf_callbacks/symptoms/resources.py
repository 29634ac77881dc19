"""Time and memory, the seam of a resumed run, and what cannot be told because nobody measured it."""

import math
from typing import Literal

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import Stage, stage_of
from lit_rlhf_callbacks.symptoms.readings import fact_above, number, rose
from lit_rlhf_callbacks.symptoms.robust import TINY, shift

DIRECTIONS: dict[str, Literal["up", "down"]] = {"tokens_per_second": "down", "step_time": "up"}
SLOWED = math.log(2)
NUM_SLOW = 30  # rows; a shared machine has bad minutes
SLOWED_BY_PART, NUM_SLOW_BY_PART = 1.5, 15  # where one part of an update alone takes over, which no busy machine does
SLOW_PART = 2.0  # times as long as before
NEARLY_FULL = 0.97  # allocators hold some; what stays free is no longer a reserve
TAKEN_OVER = 0.2  # more of an update than before
NUM_ROWS = 5  # what has not come by then is not measured
WANTED: dict[Stage, tuple[tuple[str, str, str], ...]] = {
    "rl": (
        ("grad_norm", "zero_gradient, gradient_spikes", "add PolicyMonitor"),
        ("entropy", "entropy_collapse, entropy_explosion", "log entropy"),
        ("frac_reward_zero_std", "zero_contrast, dead_reward", "log the share of groups with equal rewards"),
        ("completions/clipped_ratio", "truncation, never_stops", "log the share of completions that were cut off"),
        ("completions/mean_length", "length_hacking, empty_completions", "log completion lengths"),
    ),
    "preference": (
        ("grad_norm", "zero_gradient, gradient_spikes", "add PolicyMonitor"),
        ("rewards/margins|rewards/chosen", "displacement", "log the implicit rewards of chosen and rejected"),
        ("logps/chosen", "displacement, identical_pairs", "log the log-probs of chosen and rejected"),
    ),
    "reward_model": (
        ("grad_norm", "zero_gradient, gradient_spikes", "add PolicyMonitor"),
        ("accuracy", "reward_model_at_chance", "log the share of pairs ranked right"),
    ),
    "sft": (("grad_norm", "zero_gradient, gradient_spikes", "add PolicyMonitor"),),
}
BETWEEN_UPDATES = ("time/evaluation", "time/checkpoint")  # not in every row
BY_TOKENS = ("time/rollout", "time/update", "time/score")  # as long as completions are
DISTANCES = ("kl", "drift/forward_kl", "update/relative_norm")

KINDS = (
    Kind(
        "throughput_loss",
        "§2",
        "Updates have become slower",
        (
            Cause(
                "lengths_grew",
                "completions have become longer",
                3.0,
                "look at completions/mean_length beside tokens_per_second: tokens per second stay if this is it",
                (Sign("completions are half as long again", rose("completions/mean_length", times=1.5), 4.0, 0.3),),
            ),
            Cause(
                "straggler",
                "one rank, or the machine, has become slow",
                1.0,
                "compare time/update and time/rollout: all parts slow down together if this is it",
                (Sign("there is more than one rank", fact_above("trainer.world_size", 1), 2.0),),
            ),
            Cause(
                "reward_slow",
                "a reward function has become slow",
                1.0,
                "look at time/reward",
                (Sign("rewards take twice as long", rose("time/reward", times=2.0), 5.0, 0.3),),
            ),
        ),
        explained_by=("length_hacking", "never_stops", "truncation"),
    ),
    Kind(
        "memory_near_limit",
        "I",
        "Memory is nearly full",
        (
            Cause(
                "length_outlier",
                "the longest sequence decides, and a longer one may come",
                2.0,
                "look at completions/max_length; set data.max_length or model.max_tokens_per_forward",
            ),
            Cause(
                "kv_cache",
                "the cache of generation fills it: completions at once × their length",
                1.0,
                "look at the peak during time/rollout; generate fewer completions at once",
                (Sign("this run does not generate", lambda view: stage_of(view) != "rl", 0.02),),
            ),
        ),
    ),
    Kind(
        "metric_missing",
        "§7",
        "Some failures cannot be seen in this log",
        (
            Cause(
                "not_logged",
                "nobody measures these metrics",
                1.0,
                "add PolicyMonitor to the callbacks, and log what the summary names",
            ),
        ),
    ),
)


def throughput_loss(view: RunView) -> Alarm | None:
    """Say that updates take twice as long; a warning only where one part of them alone slowed down."""
    name = next((name for name in ("tokens_per_second", "step_time") if name in view.history.series), None)
    if name is None or not view.history[name].is_armed(NUM_SLOW_BY_PART):
        return None
    speed, before = view.history[name], max(view.history[name].baseline_median(), TINY)
    ratio = speed.recent_median(NUM_SLOW_BY_PART) / before
    slower = 1 / max(ratio, TINY) if DIRECTIONS[name] == "down" else ratio
    if slower < SLOWED_BY_PART:
        return None  # said cheaply, in nearly every row
    part = _slow_part(view)
    if not part and shift(speed, DIRECTIONS[name], scale="log", min_size=SLOWED, num_rows=NUM_SLOW) is None:
        return None
    now, limit = ratio * before, before * SLOWED_BY_PART ** (1 if DIRECTIONS[name] == "up" else -1)
    evidence = (*part, Evidence(name, now, before, limit))
    why = f"; {part[0].metric} is {part[0].value:.2g} s and was {part[0].baseline:.2g}" if part else ""
    summary = f"{name} is {now:.3g} and was {before:.3g}{why}"
    return Alarm("throughput_loss", "warn" if part else "info", "statistical", summary, evidence)


def _slow_part(view: RunView) -> tuple[Evidence, ...]:
    """Return the part of an update that alone became slow: a busy machine slows all of them alike."""
    parts = {name: series for name, series in view.history.series.items() if name.startswith("time/")}
    parts = {name: series for name, series in parts.items() if name not in BETWEEN_UPDATES}
    parts = {name: series for name, series in parts.items() if series.is_armed(NUM_ROWS)}
    before = {name: series.baseline_median() for name, series in parts.items()}
    now = {name: series.recent_median(NUM_SLOW_BY_PART) for name, series in parts.items()}
    whole = sum(before.values()), sum(now.values())
    if not all(whole):
        return ()
    return tuple(
        Evidence(name, now[name], before[name], SLOW_PART * before[name], "s")
        for name in parts
        if name not in BY_TOKENS
        and now[name] > SLOW_PART * before[name]
        and now[name] / whole[1] > before[name] / whole[0] + TAKEN_OVER
    )


def memory_near_limit(view: RunView) -> Alarm | None:
    """Name a peak of memory so near the device's own that the next longer sequence may not fit."""
    total = number(view, "device.memory_gib")
    if not total or not view.history.has("memory/peak_gib"):
        return None
    peak = view.history["memory/peak_gib"].last
    if peak < NEARLY_FULL * total:
        return None
    evidence = (Evidence("memory/peak_gib", peak, threshold=NEARLY_FULL * total, unit="GiB"),)
    summary = f"the peak is {peak:.1f} of {total:.1f} GiB, so a longer sequence may not fit"
    return Alarm("memory_near_limit", "warn", "inferred", summary, evidence)


def metric_missing(view: RunView) -> Alarm | None:
    """List failures that this log cannot show, and what would show them."""
    history, stage = view.history, stage_of(view)
    if stage is None or history.num_rows < NUM_ROWS:
        return None
    blind = [
        f"{kinds} ({advice})"
        for names, kinds, advice in WANTED[stage]
        if not any(name in history.series for name in names.split("|"))
    ]
    if stage != "reward_model" and not any(name in history.series for name in DISTANCES):
        blind.append("policy_not_moving (log kl, or add PolicyMonitor)")
    if not blind:
        return None
    evidence = (Evidence("metrics", len(blind), 0.0, unit="families that are blind"),)
    step = history.first_step or 1
    return Alarm("metric_missing", "info", "exact", f"cannot be seen: {'; '.join(blind)}", evidence, (step, step))


RULES: tuple[Rule, ...] = (throughput_loss, memory_near_limit, metric_missing)
