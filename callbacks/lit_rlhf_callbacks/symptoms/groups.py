"""What comparing the completions of a prompt needs: rewards that differ within groups (symptom F)."""

from statistics import fmean, median

from lit_rlhf_callbacks.symptoms.finding import Alarm, Basis, Evidence, Rule, RunView, Severity
from lit_rlhf_callbacks.symptoms.gains import has_learned, has_risen, num_completions, num_groups, pass_rate
from lit_rlhf_callbacks.symptoms.group_kinds import KINDS
from lit_rlhf_callbacks.symptoms.history import Series
from lit_rlhf_callbacks.symptoms.readings import NUM_LATE, level_of, number, start_of
from lit_rlhf_callbacks.symptoms.robust import share_above, shift

__all__ = ["KINDS", "RULES"]

NUM_IMMEDIATE = 3
MOSTLY_EQUAL = 0.5
MOSTLY_RIGHT = 0.75
NEARLY_ALL = 0.9
HARDLY_ANY = 0.85  # equal groups in a run that has learned its prompts: time to stop, or for harder ones
FEW_SUCH_GROUPS = 12.0  # equal ones in a row before this is taken for the rule
TEN_TIMES = 2.3  # on the log scale
THREE_TIMES = 1.1
FIVE_TIMES = 5.0
MANY_COMPLETIONS = 48  # alike, where nothing says how often one is
HARDLY_BY_CHANCE = 1e-4
NUM_AFTER, NUM_BEFORE = 4, 15  # rows on either side of a jump


def zero_contrast(view: RunView) -> Alarm | None:
    """Name a run most of whose groups have equal rewards, unless that is because it has learned its prompts."""
    if not view.history.has("frac_reward_zero_std", num_rows=NUM_IMMEDIATE):
        return None
    series, groups = view.history["frac_reward_zero_std"], num_groups(view)
    all_equal = _last_equal(series.recent_values(NUM_LATE), 1.0)
    if all_equal >= NUM_IMMEDIATE and all_equal * groups >= FEW_SUCH_GROUPS:
        basis, num_rows = "exact", all_equal
    elif share_above(series, MOSTLY_EQUAL, trials_per_row=groups, num_rows=NUM_LATE):
        basis, num_rows = "statistical", NUM_LATE
    else:
        return None
    share = sum(series.recent_values(num_rows)) / num_rows
    severity: Severity = "critical" if share > NEARLY_ALL else "warn"
    if _is_solved(view):
        is_over = share_above(series, HARDLY_ANY, trials_per_row=groups, num_rows=2 * NUM_LATE)
        severity = "warn" if is_over else "info"
    summary = f"in {share:.0%} of the groups all rewards are equal (last {num_rows} rows){_at_rate(view)}"
    evidence = (
        Evidence("frac_reward_zero_std", share, start_of(view, "frac_reward_zero_std"), MOSTLY_EQUAL, "share"),
        *_reward_evidence(view),
    )
    return Alarm("zero_contrast", severity, _basis(basis), summary, evidence, _from_start(view, share, MOSTLY_EQUAL))


def dead_reward(view: RunView) -> Alarm | None:
    """Name rewards that are one constant over prompts and rows, or that are all missing."""
    dropped = level_of(view, "rewards/num_dropped", NUM_IMMEDIATE) or 0.0
    everything = number(view, "window.num_completions")
    if everything and dropped >= everything and view.history["rewards/num_dropped"].count >= NUM_IMMEDIATE:
        evidence = (Evidence("rewards/num_dropped", dropped, 0.0, everything, "completions"),)
        return Alarm("dead_reward", "critical", "exact", "no completion has a valid reward", evidence)
    num_rows = _constant_rows(view)
    if num_rows == 0:
        return None
    value = view.history["reward"].last
    if pass_rate(view) == 1.0 and _is_solved(view):
        return None
    steps = [step for step, _ in view.history["reward"].recent][-num_rows:]
    summary = f"every reward of the last {num_rows} rows is {value:g}, whatever was written"
    evidence = (Evidence("reward", value, start_of(view, "reward"), unit="reward", window=(steps[0], steps[-1])),)
    return Alarm("dead_reward", "critical", "exact", summary, evidence, (steps[0], steps[0]))


def advantage_collapse(view: RunView) -> Alarm | None:
    """Name advantages that fell to a tenth in a run that has not solved its prompts."""
    if not view.history.has("advantages/std"):
        return None
    series = view.history["advantages/std"]
    fall = shift(series, "down", scale="log", min_size=TEN_TIMES)
    if fall is None or not _has_sunk(series) or _is_solved(view):
        return None
    evidence = (
        Evidence("advantages/std", fall.value, fall.baseline, fall.threshold, "reward or σ", fall.window),
        *_reward_evidence(view),
    )
    summary = f"the spread of advantages fell from {fall.baseline:.3g} to {fall.value:.3g}{_at_rate(view)}"
    return Alarm("advantage_collapse", "warn", "statistical", summary, evidence)


def advantage_spike(view: RunView) -> Alarm | None:
    """Name advantages that have grown to three times, in a run that gains nothing from it."""
    if not view.history.has("advantages/std"):
        return None
    jump = _jump(view.history["advantages/std"])
    if jump is not None:
        evidence = (Evidence("advantages/std", jump[1], jump[0], FIVE_TIMES * jump[0], "reward or σ"),)
        summary = f"the spread of advantages jumped from {jump[0]:.3g} to {jump[1]:.3g}"
        return Alarm("advantage_spike", "warn", "statistical", summary, evidence)
    rise = shift(view.history["advantages/std"], "up", scale="log", min_size=THREE_TIMES)
    if rise is None or has_learned(view):
        return None
    evidence = (Evidence("advantages/std", rise.value, rise.baseline, rise.threshold, "reward or σ", rise.window),)
    summary = f"the spread of advantages rose from {rise.baseline:.3g} to {rise.value:.3g}"
    return Alarm("advantage_spike", "warn", "statistical", summary, evidence)


def reward_std_death(view: RunView) -> Alarm | None:
    """Name a spread within groups that fell to a tenth before the run was any good."""
    if not view.history.has("reward_std"):
        return None
    series = view.history["reward_std"]
    fall = shift(series, "down", scale="log", min_size=TEN_TIMES)
    if fall is None or not _has_sunk(series) or _is_solved(view):
        return None
    evidence = (
        Evidence("reward_std", fall.value, fall.baseline, fall.threshold, "reward", fall.window),
        *_reward_evidence(view),
    )
    summary = f"rewards of a prompt differed by {fall.baseline:.3g} and now by {fall.value:.3g}{_at_rate(view)}"
    return Alarm("reward_std_death", "warn", "statistical", summary, evidence)


RULES: tuple[Rule, ...] = (zero_contrast, dead_reward, advantage_collapse, advantage_spike, reward_std_death)


def _basis(name: str) -> Basis:
    return "exact" if name == "exact" else "statistical"


def _is_solved(view: RunView) -> bool:
    """Tell whether equal rewards are what success looks like here: most answers right, and more than at the start.

    With seven groups in ten equal at a pass rate of 0.65 a third of the prompts is never solved: that is no success.
    """
    learned = has_learned(view)
    if not (has_risen(view) if learned is None else learned):
        return False
    rate = pass_rate(view)
    return rate is None or rate > MOSTLY_RIGHT


def _has_sunk(series: Series) -> bool:
    """Tell whether the mean fell, too: of two groups a row both are often equal, and half of the rows are 0."""
    return fmean(series.recent_values(NUM_LATE)) < fmean(series.baseline) / FIVE_TIMES


def _is_beyond_chance(view: RunView, num_rows: int) -> bool:
    """Tell whether so many single completions could hardly have been rewarded alike, given how they were before."""
    rewards, num = view.history["reward"], num_rows * num_completions(view)
    since = rewards.recent[-num_rows][0]
    before = [value for at, value in rewards.trace if at < since]
    if not before or not all(0.0 <= value <= 1.0 for value in before) or rewards.last not in (0.0, 1.0):
        return num >= MANY_COMPLETIONS
    share = fmean(before)
    alike = share if rewards.last == 1.0 else 1.0 - share
    return alike**num < HARDLY_BY_CHANCE


def _at_rate(view: RunView) -> str:
    rate = pass_rate(view)
    return "" if rate is None else f", at a pass rate of {rate:.0%}"


def _from_start(view: RunView, share: float, bound: float) -> tuple[int, int] | None:
    """Return the first step where the share was there from the beginning; else the engine fits an onset."""
    start = start_of(view, "frac_reward_zero_std")
    if start is None or start < max(bound, 0.9 * share):
        return None
    first = view.history["frac_reward_zero_std"].trace[0][0]
    return first, first


def _reward_evidence(view: RunView) -> tuple[Evidence, ...]:
    level = level_of(view, "reward")
    return () if level is None else (Evidence("reward", level, start_of(view, "reward"), unit="reward"),)


def _jump(series: Series) -> tuple[float, float] | None:
    """Return medians before and after a jump so large that no learning does it, of rows that carry signal."""
    values = [value for _, value in series.recent if value > 0]
    if not values or values[-1] < FIVE_TIMES * min(values):
        return None
    for place in range(len(values) - NUM_AFTER, NUM_BEFORE - 1, -1):
        before, after = values[place - NUM_BEFORE : place], values[place:]
        if min(after) >= FIVE_TIMES * max(before):
            return median(before), median(after)
    return None


def _last_equal(values: list[float], wanted: float) -> int:
    """Count how many of the newest values are exactly this one."""
    count = 0
    for value in reversed(values):
        if value != wanted:
            break
        count += 1
    return count


def _constant_rows(view: RunView) -> int:
    """Return for how many rows all rewards, within and across prompts, have been the same; 0 for too few to tell."""
    if not view.history.has("reward", num_rows=NUM_IMMEDIATE):
        return 0
    rewards = view.history["reward"]
    if rewards.recent[-1][1] != rewards.recent[-2][1]:
        return 0
    num_rows = _last_equal(rewards.recent_values(NUM_LATE), rewards.last)
    if num_groups(view) >= num_completions(view) and not _is_beyond_chance(view, num_rows):
        return 0
    for spread in ("reward_std", "rewards/std"):
        if view.history.has(spread):
            num_rows = min(num_rows, _last_equal(view.history[spread].recent_values(NUM_LATE), 0.0))
            needed = max(NUM_IMMEDIATE, FEW_SUCH_GROUPS / num_groups(view))
            return num_rows if num_rows >= needed else 0
    # A mean alone may repeat by chance, but for the value that nothing was rewarded with.
    return num_rows if num_rows >= (NUM_IMMEDIATE if rewards.last == 0 else 2 * NUM_IMMEDIATE) else 0
