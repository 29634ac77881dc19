"""A policy that becomes certain, scatters, or runs away from its reference (symptoms C and E), and clipping."""

from statistics import median

from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.gains import (
    NUM_STALLED,
    eval_gain,
    fell_from_peak,
    has_fallen,
    has_learned,
    has_not_risen,
    has_risen,
    is_falling,
    pass_rate,
    stalled_since,
)
from lit_rlhf_callbacks.symptoms.objective import OFFLINE, stage_of
from lit_rlhf_callbacks.symptoms.policy_kinds import KINDS, is_learned_reward
from lit_rlhf_callbacks.symptoms.readings import NUM_LATE, level_of, number, start_of
from lit_rlhf_callbacks.symptoms.robust import shift

__all__ = ["KINDS", "RULES"]

NUM_SOON = 5
A_TENTH = 0.1
TWICE = 0.7  # on the log scale
EIGHT_TIMES = 2.08
NO_CONTRAST = 0.8
NOT_SOLVED = 0.85
SPREAD_OUT = 0.2  # nats
FAR, VERY_FAR = 1.0, 10.0  # KL per token over the start policy's own entropy
LEAST_ENTROPY = 0.1  # nats; below this the ratio to entropy says little
CLIPPED, MOSTLY_CLIPPED = 0.3, 0.5
MIN_CLIPPING_ROWS = 5
NARROW = 0.01  # a clip of a sequence's ratio, which is meant to act on many
ONE_SIDED = 3.0
ONE, OFF_ONE = 1e-4, 1e-2  # a ratio that counts as 1, and one that does not


def entropy_collapse(view: RunView) -> Alarm | None:
    """Name an entropy below a tenth of the start's when something else says that this is no success.

    Entropy falls in every run that learns from rewards, so its fall alone is never an alarm.
    """
    if not view.history.has("entropy", num_rows=2 * NUM_SOON):
        return None
    start, now = start_of(view, "entropy"), level_of(view, "entropy", NUM_SOON)
    if start is None or now is None or now > A_TENTH * start or start <= 0:
        return None
    harm = _harm_of_certainty(view)
    if harm is None:
        return None
    evidence = (Evidence("entropy", now, start, A_TENTH * start, "nats/token"), harm[1])
    severity: Severity = "critical" if fell_from_peak(view) else "warn"
    summary = f"entropy fell from {start:.3g} to {now:.2g} nats per token, and {harm[0]}"
    return Alarm("entropy_collapse", severity, "statistical", summary, evidence)


def entropy_explosion(view: RunView) -> Alarm | None:
    """Name an entropy that has doubled while the run gets worse."""
    if not view.history.has("entropy", num_rows=2 * NUM_SOON):
        return None
    start, now = start_of(view, "entropy"), level_of(view, "entropy", NUM_SOON)
    if start is None or now is None or now < max(2 * start, start + SPREAD_OUT):
        return None
    got_worse = has_fallen(view) or fell_from_peak(view)
    if not got_worse and (has_learned(view) is not False or not _rose_for_long(view)):
        return None
    level = level_of(view, "reward", NUM_SOON)
    evidence = (
        Evidence("entropy", now, start, max(2 * start, start + SPREAD_OUT), "nats/token"),
        *(() if level is None else (Evidence("reward", level, start_of(view, "reward"), unit="reward"),)),
    )
    summary = f"entropy rose from {start:.3g} to {now:.3g} nats per token while the reward "
    summary += "fell" if got_worse else "did not rise"
    return Alarm("entropy_explosion", "critical" if got_worse else "warn", "statistical", summary, evidence)


def kl_explosion(view: RunView) -> Alarm | None:
    """Name a KL that is large beside the start policy's own entropy, and grew many times over, for no gain."""
    # over rows that the policy did not write, k3 is no KL: a healthy DPO run reaches thousands
    names = ("drift/forward_kl",) if stage_of(view) in OFFLINE else ("kl", "drift/forward_kl")
    metric = next((name for name in names if view.history.has(name, num_rows=3)), None)
    if metric is None:
        return None
    series, entropy = view.history[metric], max(start_of(view, "entropy") or 1.0, LEAST_ENTROPY)
    now = series.recent_median(3)
    if now < FAR * entropy:
        return None
    rise = shift(series, "up", scale="log", min_size=EIGHT_TIMES, num_rows=NUM_SOON)
    is_far = now > VERY_FAR * entropy
    if rise is None and not is_far and metric == "kl":
        return None
    got_worse = has_fallen(view) or fell_from_peak(view) or _held_out_fell(view)
    got_worse = got_worse or (now > 2 * FAR * entropy and is_falling(view))
    bought_nothing = not got_worse and now > 2 * FAR * entropy and rise is not None and _gains_nothing(view)
    if not got_worse and not bought_nothing and (not is_far or has_risen(view)):
        return None
    outcome = "nothing is gained for it any more" if bought_nothing else "the reward did not rise"
    outcome = "answers got worse" if got_worse else outcome
    evidence = (Evidence(metric, now, series.start[0], FAR * entropy, "nats/token"),)
    summary = (
        f"{metric} is {now:.3g} nats per token, {now / entropy:.1f} times the entropy the start policy had, "
        f"and {outcome}"
    )
    return Alarm("kl_explosion", "critical" if got_worse else "warn", "statistical", summary, evidence)


def unleashed_reward(view: RunView) -> Alarm | None:
    """Name a learned reward without a KL, from the settings alone."""
    if number(view, "beta", "model.beta") != 0 or not is_learned_reward(view) or view.history.num_rows == 0:
        return None
    first = view.history.first_step or 0
    summary = "beta is 0 and a reward model rewards: it will be exploited where it is wrong"
    return Alarm("unleashed_reward", "warn", "inferred", summary, (Evidence("beta", 0.0),), (first, first))


def clip_saturation(view: RunView) -> Alarm | None:
    """Name a large share of clipped tokens over the updates in which clipping acted at all."""
    for metric in ("clip_ratio/region_mean", "cispo_clip_ratio"):
        values = _clipping(view, metric)
        if len(values) < MIN_CLIPPING_ROWS or _clips_sequences(view):
            continue
        share = median(values)
        if share > CLIPPED:
            evidence = (Evidence(metric, share, None, CLIPPED, "share"),)
            summary = f"{share:.0%} of the tokens are clipped in the updates where any are, and teach nothing there"
            severity: Severity = "critical" if share > MOSTLY_CLIPPED else "warn"
            return Alarm("clip_saturation", severity, "statistical", summary, evidence)
    return None


def clip_asymmetry(view: RunView) -> Alarm | None:
    """Say that one side's clip acts three times as often as the other's, where it acts often."""
    low, high = _clipping(view, "clip_ratio/low_mean"), _clipping(view, "clip_ratio/high_mean")
    if max(len(low), len(high)) < MIN_CLIPPING_ROWS or _clips_sequences(view):
        return None
    below, above = (median(side) if side else 0.0 for side in (low, high))
    most, least = max(below, above), min(below, above)
    if most < CLIPPED / 3 or most < ONE_SIDED * least:
        return None
    metric = "clip_ratio/low_mean" if below > above else "clip_ratio/high_mean"
    summary = f"{below:.1%} of the tokens are clipped below and {above:.1%} above"
    return Alarm("clip_asymmetry", "info", "statistical", summary, (Evidence(metric, most, least, unit="share"),))


def stale_experience(view: RunView) -> Alarm | None:
    """Name ratios that were exactly 1 in each rollout's first update, and no longer are."""
    if not view.history.has("ratio/max", num_rows=2 * NUM_LATE):
        return None
    series = view.history["ratio/max"]
    was_one = sum(abs(value - 1) < ONE for value in series.baseline) / max(1, len(series.baseline))
    recent = series.recent_values(NUM_LATE)
    if was_one * NUM_LATE < NUM_SOON or min(recent) < 1 + OFF_ONE:
        return None
    summary = (
        f"{was_one:.0%} of the first updates had a largest ratio of exactly 1, as a rollout's first update must; "
        f"the smallest of the last {NUM_LATE} is {min(recent):.3f}"
    )
    evidence = (Evidence("ratio/max", min(recent), 1.0, 1 + OFF_ONE, "ratio"),)
    return Alarm("ratio_not_one", "warn", "inferred", summary, evidence)


RULES: tuple[Rule, ...] = (
    stale_experience,
    entropy_collapse,
    entropy_explosion,
    kl_explosion,
    unleashed_reward,
    clip_saturation,
    clip_asymmetry,
)


def _harm_of_certainty(view: RunView) -> tuple[str, Evidence] | None:
    """Return what says that a low entropy is no success."""
    level, start = level_of(view, "reward", NUM_SOON), start_of(view, "reward")
    reward = Evidence("reward", level or 0.0, start, unit="reward")
    if level is not None and fell_from_peak(view):
        return f"the reward lost what it had gained ({level:.3g})", reward
    if _held_out_fell(view):
        gain = eval_gain(view)
        assert gain is not None
        return f"held-out answers got worse ({gain.start:.3g} → {gain.now:.3g})", Evidence(
            "eval/pass_at_1", gain.now, gain.start, unit="share"
        )
    for metric, bound, words in (
        ("completions/empty_ratio", 0.2, "of the completions are empty"),
        ("completions/repetition", 0.3, "of what is written repeats itself"),
    ):
        value, before = level_of(view, metric, NUM_SOON), start_of(view, metric)
        if value is not None and before is not None and value > before + bound:
            return f"{value:.0%} {words}", Evidence(metric, value, before, before + bound, "share")
    if level is not None and has_not_risen(view) and has_learned(view) is False and _is_poor(view):
        return f"the reward has not risen ({start:.3g} → {level:.3g})", reward
    equal, rate = level_of(view, "frac_reward_zero_std", NUM_LATE), pass_rate(view)
    if rate is not None and rate < NOT_SOLVED and _is_certain_for_long(view):
        since = stalled_since(view)
        if since is not None:
            return f"nothing has been gained since update {since}, at a pass rate of {rate:.0%}", reward
    if equal is not None and rate is not None and equal > NO_CONTRAST and rate < NOT_SOLVED:
        words = f"{equal:.0%} of the groups have equal rewards at a pass rate of {rate:.0%}"
        return words, Evidence("frac_reward_zero_std", equal, start_of(view, "frac_reward_zero_std"), unit="share")
    return None


def _gains_nothing(view: RunView) -> bool:
    """Tell whether a reward that is not as high as it can be has long stayed where it is."""
    return _is_poor(view) and stalled_since(view) is not None


def _is_certain_for_long(view: RunView) -> bool:
    start = start_of(view, "entropy")
    values = view.history["entropy"].recent_values(NUM_STALLED)
    return start is not None and len(values) == NUM_STALLED and max(values) < A_TENTH * start


def _is_poor(view: RunView) -> bool:
    """Tell whether there was something left to gain."""
    rate = pass_rate(view)
    return rate is None or rate < NOT_SOLVED


def _held_out_fell(view: RunView) -> bool:
    gain = eval_gain(view)
    return gain is not None and gain.is_down


def _rose_for_long(view: RunView) -> bool:
    return shift(view.history["entropy"], "up", scale="log", min_size=TWICE) is not None


def _clipping(view: RunView, metric: str) -> list[float]:
    """Return the recent shares of updates that clipped anything: a phase's first update has nothing to clip."""
    if not view.history.has(metric):
        return []
    return [value for _, value in view.history[metric].recent if value > 0]


def _clips_sequences(view: RunView) -> bool:
    width = number(view, "model.clip_high")
    return view.facts.get("algorithm") == "GSPO" or (width is not None and width < NARROW)
