"""Whether an RL run has gained anything: most of what looks like a fault is none in a run that learns."""

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import accumulate, pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple, TypeVar

from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.history import NUM_RECENT, Series
from lit_rlhf_callbacks.symptoms.objective import rise_of
from lit_rlhf_callbacks.symptoms.readings import NUM_LATE, level_of, number, start_of
from lit_rlhf_callbacks.symptoms.robust import shift

EVAL = "eval/pass_at_1"
NUM_SIGMAS = 2.5
MATERIAL = 0.5  # of the spread within a group at the start: 0.25 for rewards of 0 and 1, half of them right
A_THIRD = 1 / 3
UNKNOWN_GROUPS = 4.0  # groups per row where nobody says
UNKNOWN_COMPLETIONS = 16.0
UNKNOWN_EVALUATION = 64.0  # samples
MIN_EVALUATIONS = 6  # before their scatter says something
NUM_STALLED = 30  # points of a trace
SMALLEST_GAIN = 0.05  # that would matter, of rewards between 0 and 1
SMALLEST_SCALE = 1e-3
HIGH, LOW = 0.8, 0.2  # pass rates
Answer = TypeVar("Answer")


def once_per_row(question: Callable[[RunView], Answer]) -> Callable[[RunView], Answer]:
    """Answer a question once per row; each rule that asks it counts as having looked at what it needs."""

    @wraps(question)
    def answer(view: RunView) -> Answer:
        asked = view.history.asked
        if question not in view.answers:
            before = asked.take()
            view.answers[question] = question(view), asked.take()
            asked.add(before)
        known, needed = view.answers[question]
        asked.add(needed)
        return known

    return answer


class Gain(NamedTuple):
    """A change since the start: from, to, and the error of the difference."""

    start: float
    now: float
    error: float

    @property
    def size(self) -> float:
        """The change."""
        return self.now - self.start

    @property
    def is_up(self) -> bool:
        """Whether it rose beyond its noise."""
        return self.size > NUM_SIGMAS * self.error

    @property
    def is_down(self) -> bool:
        """Whether it fell beyond its noise."""
        return self.size < -NUM_SIGMAS * self.error


def group_size_of(view: RunView) -> float | None:
    """Return the completions per prompt."""
    return number(view, "model.group_size", "group_size", "model.num_generations")


def num_completions(view: RunView) -> float:
    """Return the completions behind a row; few where nobody says, so that bounds are wide."""
    return number(view, "window.num_completions") or UNKNOWN_COMPLETIONS


def num_groups(view: RunView) -> float:
    """Return the groups behind a row."""
    size, completions = group_size_of(view), number(view, "window.num_completions")
    return max(1.0, completions / size) if size and completions else UNKNOWN_GROUPS


@once_per_row
def reward_scale(view: RunView) -> float | None:
    """Return how far rewards of one prompt lie apart at the start: the unit of a material change."""
    for metric in ("reward_std", "advantages/std"):
        start = start_of(view, metric)
        if start is not None and start > SMALLEST_SCALE:
            return start if metric == "reward_std" or is_plain_advantage(view) else None
    return None


def is_plain_advantage(view: RunView) -> bool:
    """Tell whether advantages are in units of reward."""
    return view.facts.get("model.advantage_scale") == "none" and view.facts.get("algorithm") != "MaxRL"


def reward_gain(view: RunView) -> Gain | None:
    """Compare the reward's last rows with its first three; the error is that of the rows' own scatter."""
    if not view.history.has("reward", num_rows=6):
        return None
    reward = view.history["reward"]
    return _gain_of(reward, reward.count)


@once_per_row
def eval_gain(view: RunView) -> Gain | None:
    """Compare the last two evaluations, the one nearer to the start, with the first."""
    if not view.history.has(EVAL, num_rows=3):
        return None
    series = view.history[EVAL]
    start, last = series.start[0], series.recent_values(2)
    now = min(last, key=lambda value: abs(value - start))
    return Gain(start, now, _eval_error(view, start, now))


@once_per_row
def eval_decline(view: RunView) -> tuple[int, Gain] | None:
    """Compare the last three evaluations with the best three in a row; return the step of those, too.

    Medians of three: one lucky evaluation is no peak.
    """
    series = view.history.series.get(EVAL)
    if series is None or series.count < MIN_EVALUATIONS:  # asked beside the start's comparison, which needs fewer
        return None
    points = series.trace
    smooth = [(step, median(value for _, value in points[i : i + 3])) for i, (step, _) in enumerate(points[1:-1])]
    step, best = max(smooth, key=lambda point: (point[1], -point[0]))
    now = median(value for _, value in points[-3:])
    error = _decline_error(view, (best + now) / 2)
    return (step, Gain(best, now, error)) if error > 0 else None


def has_not_risen(view: RunView) -> bool:
    """Tell whether the last thirty rows of the reward lie no higher than its baseline, beyond their noise."""
    if not view.history.has("reward") or not view.history["reward"].is_armed(1):
        return False
    reward = view.history["reward"]
    rise = rise_of(reward.baseline, reward.recent_values(min(NUM_STALLED, reward.num_after)))
    return rise.value < 2 * rise.error


def stalled_since(view: RunView) -> int | None:
    """Return since which update the reward has gained nothing, where a gain that matters would have shown.

    Compared are the last thirty points of its trace, rows as long as a run is short, and the thirty before them.
    """
    points = view.history["reward"].trace[-2 * NUM_STALLED :] if view.history.has("reward") else []
    if len(points) < 2 * NUM_STALLED:
        return None
    before, late = ([value for _, value in half] for half in (points[:NUM_STALLED], points[NUM_STALLED:]))
    error = math.hypot(pstdev(late), pstdev(before)) / math.sqrt(NUM_STALLED)
    has_gained = fmean(late) - fmean(before) > 2 * error
    return None if has_gained or 2.5 * error > SMALLEST_GAIN else points[NUM_STALLED][0]


@once_per_row
def has_risen(view: RunView) -> bool | None:
    """Tell whether the reward rose since the start by a size that matters, beyond its noise."""
    gain = reward_gain(view)
    if gain is None:
        return None
    return gain.size > max(MATERIAL * (reward_scale(view) or 0.0), NUM_SIGMAS * gain.error, SMALLEST_SCALE)


@once_per_row
def has_fallen(view: RunView) -> bool | None:
    """Tell whether the reward fell: below its baseline, or before there is one, to a third of its first rows.

    Three rows are few: with 64 samples per update their median is off by as much as a run gains in a hundred updates.
    """
    gain = reward_gain(view)
    if gain is None:
        return None
    size = max(MATERIAL * (reward_scale(view) or 0.0), SMALLEST_SCALE)
    if shift(view.history["reward"], "down", min_size=size) is not None:
        return True
    is_share = 0.0 <= gain.now <= gain.start <= 1.0
    lost = gain.now < A_THIRD * gain.start if is_share else -gain.size > 3 * size
    return lost and -gain.size > 2 * NUM_SIGMAS * gain.error


@once_per_row
def has_learned(view: RunView) -> bool | None:
    """Tell whether the run is better than it was: held-out answers decide, else the reward; None where neither is."""
    held_out = eval_gain(view)
    if held_out is not None and (held_out.is_up or held_out.is_down):
        return held_out.is_up
    rises = has_risen(view)
    if rises and held_out is not None:
        return None  # the reward says so, and answers that are not rewarded do not, or not yet
    return rises


@once_per_row
def fell_from_peak(view: RunView) -> bool:
    """Tell whether the reward lost half of what it had gained: means of 15 rows, since one lucky row is no peak."""
    gain = reward_gain(view)
    if gain is None or view.history["reward"].count < 2 * NUM_LATE:
        return False
    values = [value for _, value in view.history["reward"].trace]
    now = sum(values[-NUM_LATE:]) / NUM_LATE
    size = max(MATERIAL * (reward_scale(view) or 0.0), 2 * NUM_SIGMAS * gain.error, SMALLEST_SCALE)
    if len(values) < 2 * NUM_LATE or max(values) - now <= size:
        return False
    sums = [0.0, *accumulate(values)]
    best = max(later - earlier for later, earlier in zip(sums[NUM_LATE:], sums, strict=False)) / NUM_LATE
    return best - now > max(size, 0.5 * (best - gain.start))


def is_falling(view: RunView) -> bool:
    """Tell whether the last ten rows of the reward lie below the thirty before them by more than chance.

    Three errors, and a size that matters, since it is asked at every row: two would be crossed by chance once in forty
    times.
    """
    values = view.history["reward"].recent_values(NUM_RECENT) if view.history.has("reward", num_rows=NUM_RECENT) else []
    if not values:
        return False
    late, before = values[-10:], values[:-10]
    spread = pstdev(before)
    error = spread * math.sqrt(1 / 10 + 1 / len(before))
    return fmean(before) - fmean(late) > max(3 * error, MATERIAL * (reward_scale(view) or 0.0))


@once_per_row
def pass_rate(view: RunView) -> float | None:
    """Return the share of right answers: a reward between 0 and 1, which groups are made of, else the held-out one."""
    level = level_of(view, "reward")
    if level is not None and all(-1e-6 <= value <= 1 + 1e-6 for _, value in view.history["reward"].recent):
        return level
    return view.history[EVAL].last if view.history.has(EVAL) else None


def is_too_easy(view: RunView) -> bool | None:
    """Tell whether nearly all answers are right."""
    rate = pass_rate(view)
    return None if rate is None else rate >= HIGH


def is_mostly_right(view: RunView) -> bool | None:
    """Tell whether more than half of the answers are right."""
    rate = pass_rate(view)
    return None if rate is None else rate > 0.5


def is_too_hard(view: RunView) -> bool | None:
    """Tell whether hardly any answer is right."""
    rate = pass_rate(view)
    return None if rate is None else rate <= LOW


def _decline_error(view: RunView, share: float) -> float:
    """Return the error of the difference of two evaluations of the same share: from samples, or from what is logged.

    A logged error alone will not do: it is 0 where no answer, or every one, was right.
    """
    num = view.history["eval/n"].last if view.history.has("eval/n") else number(view, "num_eval")
    if num is None:
        errors = view.history.series.get("eval/pass_at_1_se")
        logged = math.sqrt(2) * errors.recent_median(NUM_RECENT) if errors is not None and errors.count else 0.0
        return max(logged, _scatter(view))
    share = min(max(share, 2 / num), 1 - 2 / num)
    return math.sqrt(2 * share * (1 - share) / num)


def _scatter(view: RunView) -> float:
    """Return the root mean square of the steps from one evaluation to the next."""
    return math.sqrt(fmean([(b - a) ** 2 for (_, a), (_, b) in pairwise(view.history[EVAL].recent)]))


def _eval_error(view: RunView, first: float, second: float) -> float:
    """Return the error of the difference of two evaluations: as logged, from their samples, or from their scatter."""
    if view.history.has("eval/pass_at_1_se"):
        errors = view.history["eval/pass_at_1_se"]
        return math.hypot(errors.start[0], errors.last)
    num = view.history["eval/n"].last if view.history.has("eval/n") else number(view, "num_eval")
    if num is None and view.history[EVAL].count >= MIN_EVALUATIONS:
        return _scatter(view)
    shares = first * (1 - first) + second * (1 - second)
    return math.sqrt(shares / (num or UNKNOWN_EVALUATION)) if 0 <= second <= 1 else 0.0


@lru_cache(maxsize=16)  # many rules ask within a row; a series with this many values does not change
def _gain_of(reward: Series, count: int) -> Gain:
    late = reward.recent_values(max(1, min(NUM_LATE, count - len(reward.start))))
    rows = reward.baseline if len(reward.baseline) > 2 else late
    noise = math.sqrt(sum((b - a) ** 2 for a, b in pairwise(rows)) / max(1, len(rows) - 1) / 2)
    error = noise * math.sqrt(1 / len(reward.start) + 1 / len(late))
    return Gain(median(reward.start), median(late), error)
