"""Rewards that rise while answers do not (symptom B), fall, scatter, or are made of one part only."""

from statistics import median

from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.gains import (
    EVAL,
    eval_decline,
    eval_gain,
    fell_from_peak,
    has_fallen,
    has_learned,
    has_risen,
    reward_gain,
    reward_scale,
)
from lit_rlhf_callbacks.symptoms.history import NUM_BASELINE
from lit_rlhf_callbacks.symptoms.objective import num_updates, rise_of
from lit_rlhf_callbacks.symptoms.readings import NUM_LATE, level_of, start_of
from lit_rlhf_callbacks.symptoms.reward_kinds import KINDS, is_auxiliary
from lit_rlhf_callbacks.symptoms.robust import shift

__all__ = ["KINDS", "RULES"]

THREE_TIMES = 1.1  # on the log scale
SENTINEL_SIGMAS = 3.0
REPEATS = 0.3
PATIENCE = 60  # updates
FORM_LEARNED = 0.25
FEW_RIGHT = 0.1
SMALLEST_GAIN = 0.05  # that would matter, for terms between 0 and 1
A_QUARTER = 0.25  # of the spread within a group
LOST = 0.25  # of a term's level at the start
NUM_SIGMAS = 2.5


def reward_hacking(view: RunView) -> Alarm | None:
    """Name a reward that has risen while held-out answers got worse, or a text metric says that they must have."""
    if not has_risen(view):
        return None
    gain = reward_gain(view)
    assert gain is not None
    reward = Evidence("reward", gain.now, gain.start, unit="reward")
    held_out = eval_gain(view)
    if held_out is not None and held_out.is_down:
        limit = held_out.start - NUM_SIGMAS * held_out.error
        evidence = (Evidence(EVAL, held_out.now, held_out.start, limit, "share"), reward)
        summary = (
            f"the reward rose from {gain.start:.3g} to {gain.now:.3g}, and held-out answers fell from "
            f"{held_out.start:.3g} to {held_out.now:.3g} ± {held_out.error:.2g}"
        )
        return Alarm("reward_hacking", "critical", "statistical", summary, evidence)
    over = _over_optimised(view, reward)
    if over is not None:
        return over
    if held_out is not None and held_out.is_up:
        return None
    harm = _harmed_text(view)
    if harm is None:
        return None
    words, evidence_of_harm = harm
    summary = f"the reward rose from {gain.start:.3g} to {gain.now:.3g}, and {words}"
    return Alarm("reward_hacking", "warn", "inferred", summary, (evidence_of_harm, reward))


def reward_falls(view: RunView) -> Alarm | None:
    """Name a reward that has fallen below its start, or lost half of what it had gained, beyond its noise."""
    is_below = has_fallen(view)
    if not is_below and not fell_from_peak(view):
        return None
    held_out = eval_gain(view)
    if held_out is not None and held_out.is_up and not is_below:
        return None
    start, level = start_of(view, "reward"), level_of(view, "reward", 5)
    evidence = (Evidence("reward", level or 0.0, start, unit="reward"),)
    below = f"below its start ({start:.3g})" if is_below else "far below its best"
    return Alarm("reward_falls", "warn", "statistical", f"the reward is {level:.3g}, {below}", evidence)


def reward_variance_jump(view: RunView) -> Alarm | None:
    """Name a spread within groups that has grown to three times in a run that gains nothing."""
    if not view.history.has("reward_std", "reward") or has_learned(view):
        return None
    rise = shift(view.history["reward_std"], "up", scale="log", min_size=THREE_TIMES)
    if rise is None or has_risen(view):
        return None
    evidence = (
        Evidence("reward_std", rise.value, rise.baseline, rise.threshold, "reward", rise.window),
        Evidence("reward", view.history["reward"].recent_median(NUM_LATE), start_of(view, "reward"), unit="reward"),
    )
    summary = f"rewards of a prompt differed by {rise.baseline:.3g} and now by {rise.value:.3g}; the mean did not rise"
    return Alarm("reward_variance_jump", "warn", "statistical", summary, evidence)


def reward_term_dominates(view: RunView) -> Alarm | None:
    """Name a part of the reward that falls while another takes the sum along, and form that is all that is learned."""
    terms = [name for name in view.history.series if name.startswith("rewards/") and name.endswith("/mean")]
    if len(terms) < 2:
        return None
    held_out = eval_gain(view)
    if held_out is not None and held_out.is_up:
        return None
    traded = _trades_one_for_another(view, terms) if has_risen(view) else None
    return traded or _earns_by_form(view, terms)


def _trades_one_for_another(view: RunView, terms: list[str]) -> Alarm | None:
    falling = [name for name in terms if not is_auxiliary(name.split("/")[1]) and _lost(view, name)]
    rising = [name for name in terms if view.history[name].is_armed(NUM_LATE) and _rise(view, name) > 0]
    if not falling or not rising:
        return None
    worst, best = min(falling, key=lambda name: _rise(view, name)), max(rising, key=lambda name: _rise(view, name))
    evidence = tuple(
        Evidence(name, level_of(view, name) or 0.0, start_of(view, name), unit="reward") for name in (worst, best)
    )
    summary = (
        f"{worst.split('/')[1]} fell by {-_rise(view, worst):.3g} while {best.split('/')[1]} rose by "
        f"{_rise(view, best):.3g} and took the reward along"
    )
    return Alarm("reward_term_dominates", "warn", "statistical", summary, evidence)


def _earns_by_form(view: RunView, terms: list[str]) -> Alarm | None:
    """Name a form that is learned while no term that judges answers has risen, where a rise would have shown."""
    forms = [name for name in terms if is_auxiliary(name.split("/")[1])]
    others = [name for name in terms if name not in forms]
    if not forms or not others or not all(view.history[name].is_armed(NUM_LATE) for name in terms):
        return None
    if num_updates(view) < PATIENCE:
        return None
    best = max(forms, key=lambda name: _rise(view, name))
    if _rise(view, best) < FORM_LEARNED or any(_may_have_risen(view, name) for name in others):
        return None
    evidence = tuple(
        Evidence(name, level_of(view, name) or 0.0, start_of(view, name), unit="reward") for name in (best, *others)
    )
    names = ", ".join(name.split("/")[1] for name in others)
    summary = (
        f"{best.split('/')[1]} rose by {_rise(view, best):.3g} and {names} did not rise in {num_updates(view):.0f} "
        "updates: the reward is earned by form"
    )
    return Alarm("reward_term_dominates", "warn", "statistical", summary, evidence)


def reward_drift(view: RunView) -> Alarm | None:
    """Say that a reward moved in a run whose log has no held-out measure at all."""
    if any(name.startswith(("eval", "sentinel/")) for name in view.history.series):
        return None
    if not view.history.has("reward", num_rows=NUM_BASELINE + NUM_LATE):
        return None
    gain = reward_gain(view)
    if gain is None or not (has_risen(view) or has_fallen(view)):
        return None
    summary = f"the reward moved from {gain.start:.3g} to {gain.now:.3g}, and no held-out measure is logged"
    evidence = (Evidence("reward", gain.now, gain.start, unit="reward"),)
    return Alarm("reward_drift", "info", "statistical", summary, evidence)


RULES: tuple[Rule, ...] = (
    reward_hacking,
    reward_falls,
    reward_variance_jump,
    reward_term_dominates,
    reward_drift,
)


def _over_optimised(view: RunView, reward: Evidence) -> Alarm | None:
    """Name held-out answers that got better, and then worse while the reward went on rising (Gao et al. 2022)."""
    decline = eval_decline(view)
    if decline is None or not decline[1].is_down:
        return None
    step, held_out = decline
    course = view.history["reward"]
    near = [value for at, value in course.trace if at <= step][-max(1, NUM_LATE // course.rows_per_point) :]
    if not near or reward.value - median(near) < (reward_scale(view) or 1.0) * A_QUARTER:
        return None
    evidence = (Evidence(EVAL, held_out.now, held_out.start, held_out.start - NUM_SIGMAS * held_out.error, "share"),)
    summary = (
        f"held-out answers fell from {held_out.start:.3g} (update {step}) to {held_out.now:.3g} "
        f"± {held_out.error:.2g}, while the reward went on from {median(near):.3g} to {reward.value:.3g}"
    )
    return Alarm("reward_hacking", "warn", "statistical", summary, (*evidence, reward), (step, step))


def _harmed_text(view: RunView) -> tuple[str, Evidence] | None:
    """Return what shows, without held-out answers, that completions got worse."""
    for metric, words in (
        ("completions/repetition", "of what is written repeats itself"),
        ("completions/empty_ratio", "of the completions are empty"),
    ):
        now, start = level_of(view, metric), start_of(view, metric)
        if now is not None and start is not None and now > start + REPEATS:
            return f"{now:.0%} {words}", Evidence(metric, now, start, start + REPEATS, "share")
    for name, series in view.history.series.items():
        if name.startswith("sentinel/") and name.endswith("/sigma") and series.count > 1:
            sigma = max(series.recent_values(2))
            if sigma < -SENTINEL_SIGMAS:
                words = f"the sentinel {name.split('/')[1]} lost {-sigma:.1f} standard errors"
                return words, Evidence(name, sigma, 0.0, -SENTINEL_SIGMAS, "σ")
    return None


def _rise(view: RunView, name: str) -> float:
    return (level_of(view, name) or 0.0) - (start_of(view, name) or 0.0)


def _may_have_risen(view: RunView, name: str) -> bool:
    """Tell whether a term is well above nothing, rose beyond its noise, or scatters too much to tell.

    Where one answer in five is right, form is learned first and answers follow, in more than sixty updates.
    """
    series = view.history[name]
    if series.recent_median(NUM_LATE) > FEW_RIGHT:
        return True
    rise = rise_of(series.baseline, series.recent_values(NUM_LATE))
    return rise.value > 2 * rise.error or 2.5 * rise.error > SMALLEST_GAIN


def _lost(view: RunView, name: str) -> bool:
    """Tell whether a term fell by a quarter of its level, and beyond its scatter."""
    series = view.history[name]
    start = abs(median(series.start))
    return start > 0 and shift(series, "down", min_size=LOST * start) is not None
