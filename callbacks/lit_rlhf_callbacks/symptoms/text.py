"""Completions that are cut, endless, drawn out, empty, or repeat themselves (symptoms B, D and E)."""

import math

from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.gains import (
    EVAL,
    Gain,
    eval_gain,
    has_fallen,
    has_learned,
    has_risen,
    num_completions,
    reward_gain,
    reward_scale,
)
from lit_rlhf_callbacks.symptoms.readings import NUM_LATE, level_of, start_of
from lit_rlhf_callbacks.symptoms.robust import share_above, shift
from lit_rlhf_callbacks.symptoms.text_kinds import KINDS

__all__ = ["KINDS", "RULES"]

NUM_IMMEDIATE = 3
NUM_SOON = 5
OFTEN_CUT, MOSTLY_CUT = 0.1, 0.5
PLAINLY_CUT = 0.25  # enough to say so after three rows
FALLING = 0.7  # of the first rows' share: a policy that is learning to stop
NO_END = 0.9
GREW = 0.34  # on the log scale: 1.4 times
SHRANK = 0.7  # on the log scale: to a half
FOLLOWS_LENGTH = 0.2  # correlation of reward and length
MORE_CUT = 0.1
EMPTY, MOSTLY_EMPTY = 0.1, 0.5
REPEATS, LOOPS = 0.2, 0.6
KEEPS_UP = 0.25
CLIPPED, LENGTH, CORRELATION = "completions/clipped_ratio", "completions/mean_length", "rewards/length_correlation"


def truncation(view: RunView) -> Alarm | None:
    """Name a share of cut completions above a tenth, beyond its sampling error, unless it is on its way down."""
    if not view.history.has(CLIPPED, num_rows=NUM_IMMEDIATE):
        return None
    series, trials = view.history[CLIPPED], num_completions(view)
    is_plain = share_above(series, PLAINLY_CUT, trials_per_row=trials, num_rows=NUM_IMMEDIATE)
    if not is_plain and not share_above(series, OFTEN_CUT, trials_per_row=trials, num_rows=NUM_LATE):
        return None
    num_rows = NUM_IMMEDIATE if is_plain else NUM_LATE
    share, start = sum(series.recent_values(num_rows)) / num_rows, start_of(view, CLIPPED) or 0.0
    if series.count > 2 * NUM_IMMEDIATE and series.recent_median(NUM_SOON) < FALLING * start:
        return None
    severity: Severity = "critical" if share > MOSTLY_CUT else "warn"
    evidence = (Evidence(CLIPPED, share, start, OFTEN_CUT, "share"), *_length_evidence(view))
    summary = f"{share:.0%} of the completions are cut by the token limit (first {start:.0%})"
    return Alarm("truncation", severity, "statistical", summary, evidence, _if_from_start(view, CLIPPED, share))


def all_truncated(view: RunView) -> Alarm | None:
    """Name rows in which every completion is cut."""
    if not view.history.has(CLIPPED, num_rows=NUM_IMMEDIATE):
        return None
    values = view.history[CLIPPED].recent_values(NUM_IMMEDIATE)
    if min(values) < 1.0 or NUM_IMMEDIATE * num_completions(view) < 20:
        return None
    evidence = (Evidence(CLIPPED, 1.0, start_of(view, CLIPPED), OFTEN_CUT, "share"), *_length_evidence(view))
    summary = f"every completion of the last {NUM_IMMEDIATE} rows is cut by the token limit"
    return Alarm("all_truncated", "critical", "exact", summary, evidence, _if_from_start(view, CLIPPED, 1.0))


def never_stops(view: RunView) -> Alarm | None:
    """Name completions of which nine in ten have been cut from the first row on."""
    if not view.history.has(CLIPPED, num_rows=NUM_IMMEDIATE):
        return None
    series = view.history[CLIPPED]
    if min(series.start) < NO_END or min(series.recent_values(NUM_IMMEDIATE)) < NO_END:
        return None
    level = series.recent_median(NUM_IMMEDIATE)
    evidence = (Evidence(CLIPPED, level, start_of(view, CLIPPED), NO_END, "share"), *_length_evidence(view))
    first = series.trace[0][0]
    summary = f"{level:.0%} of the completions run into the token limit, from the first row on"
    return Alarm("never_stops", "critical", "statistical", summary, evidence, (first, first))


def length_hacking(view: RunView) -> Alarm | None:
    """Name answers that grew to 1.4 times their length while reward follows length and held-out answers do not gain."""
    if not view.history.has(LENGTH):
        return None
    growth = shift(view.history[LENGTH], "up", scale="log", min_size=GREW)
    if growth is None:
        return None
    held_out = eval_gain(view)
    if held_out is not None and (held_out.is_up or _keeps_up(view, held_out)):
        return None
    strength = level_of(view, CORRELATION)
    follows = strength is not None and strength > FOLLOWS_LENGTH
    cut, cut_before = level_of(view, CLIPPED), start_of(view, CLIPPED)
    more_cut = cut is not None and cut_before is not None and cut > cut_before + MORE_CUT
    if not (follows or more_cut or (held_out is not None and has_risen(view))):
        return None
    evidence = [Evidence(LENGTH, growth.value, growth.baseline, growth.threshold, "tokens", growth.window)]
    words = [f"answers grew from {growth.baseline:.0f} to {growth.value:.0f} tokens"]
    if strength is not None and follows:
        evidence.append(Evidence(CORRELATION, strength, 0.0, FOLLOWS_LENGTH, "Pearson"))
        words.append(f"reward goes with length ({strength:.2f})")
    if cut is not None and more_cut:
        evidence.append(Evidence(CLIPPED, cut, cut_before, unit="share"))
        words.append(f"{cut:.0%} are cut")
    if held_out is not None:
        evidence.append(Evidence(EVAL, held_out.now, held_out.start, unit="share"))
        words.append(f"held-out answers are no better ({held_out.start:.3g} → {held_out.now:.3g})")
    signs = [follows, more_cut, held_out is not None]
    severity: Severity = "warn" if sum(signs) >= 2 or held_out is not None else "info"
    if held_out is not None and held_out.is_down and follows:
        severity = "critical"
    return Alarm("length_hacking", severity, "statistical", "; ".join(words), tuple(evidence))


def empty_completions(view: RunView) -> Alarm | None:
    """Name a share of empty completions above a tenth, beyond its sampling error."""
    metric = "completions/empty_ratio"
    if not view.history.has(metric, num_rows=NUM_SOON):
        return None
    series = view.history[metric]
    if not share_above(series, EMPTY, trials_per_row=num_completions(view), num_rows=NUM_SOON):
        return None
    share, start = sum(series.recent_values(NUM_SOON)) / NUM_SOON, start_of(view, metric) or 0.0
    if series.recent_median(NUM_SOON) < FALLING * start:
        return None
    severity: Severity = "critical" if share > MOSTLY_EMPTY else "warn"
    evidence = (Evidence(metric, share, start, EMPTY, "share"), *_length_evidence(view))
    summary = f"{share:.0%} of the completions hold nothing but the stop (first {start:.0%})"
    return Alarm("empty_completions", severity, "statistical", summary, evidence, _if_from_start(view, metric, share))


def length_collapse(view: RunView) -> Alarm | None:
    """Name answers that shrank to half their length in a run that got worse by any other measure."""
    if not view.history.has(LENGTH):
        return None
    fall = shift(view.history[LENGTH], "down", scale="log", min_size=SHRANK)
    if fall is None:
        return None
    held_out = eval_gain(view)
    got_worse = held_out.is_down if held_out is not None else has_fallen(view)
    if not got_worse:
        return None
    evidence = (Evidence(LENGTH, fall.value, fall.baseline, fall.threshold, "tokens", fall.window),)
    measure = "held-out answers" if held_out is not None else "the reward"
    summary = f"answers shrank from {fall.baseline:.0f} to {fall.value:.0f} tokens and {measure} got worse"
    return Alarm("length_collapse", "warn", "statistical", summary, evidence)


def repetition(view: RunView) -> Alarm | None:
    """Name a share of repeated 4-grams that rose by a fifth and doubled; one that was always high is only said."""
    metric = "completions/repetition"
    if not view.history.has(metric, num_rows=2 * NUM_SOON):
        return None
    start, now = start_of(view, metric) or 0.0, level_of(view, metric, NUM_SOON) or 0.0
    evidence = (Evidence(metric, now, start, max(start + REPEATS, 2 * start), "share"), *_length_evidence(view))
    if now >= max(start + REPEATS, 2 * start):
        severity: Severity = "info" if has_learned(view) and not has_fallen(view) else "warn"
        held_out = eval_gain(view)
        if held_out is None and severity == "info":
            severity = "warn"  # a reward that rises with repetition is no proof of better answers
        summary = f"{now:.0%} of the 4-grams stood before in the same completion (first {start:.0%})"
        return Alarm("repetition", severity, "statistical", summary, evidence)
    if start > LOOPS and now > LOOPS:
        first = view.history[metric].trace[0][0]
        summary = f"{now:.0%} of the 4-grams stand in the same completion before, since the first row"
        return Alarm("repetition", "info", "statistical", summary, evidence, (first, first))
    return None


RULES: tuple[Rule, ...] = (
    truncation,
    all_truncated,
    never_stops,
    length_hacking,
    empty_completions,
    length_collapse,
    repetition,
)


def _length_evidence(view: RunView) -> tuple[Evidence, ...]:
    level = level_of(view, LENGTH, NUM_SOON)
    return () if level is None else (Evidence(LENGTH, level, start_of(view, LENGTH), unit="tokens"),)


def _if_from_start(view: RunView, metric: str, share: float) -> tuple[int, int] | None:
    """Return the first step where it has been so from the beginning; else the engine fits an onset."""
    if (start_of(view, metric) or 0.0) < 0.8 * share:
        return None
    first = view.history[metric].trace[0][0]
    return first, first


def _keeps_up(view: RunView, held_out: Gain) -> bool:
    """Tell whether held-out answers gained a quarter of what the reward did, each in units of its own spread."""
    gain, scale = reward_gain(view), reward_scale(view)
    latest = view.history[EVAL].last - held_out.start
    if gain is None or scale is None or latest <= 0:
        return False
    spread = math.sqrt(max(held_out.start * (1 - held_out.start), 0.01))
    return latest / spread > KEEPS_UP * max(gain.size, 0.0) / scale
