"""What the rules look at: every metric's start, frozen baseline, recent rows and a thinned trace, in fixed memory."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any

NUM_START = 3  # rows that say where a metric began
NUM_BASELINE = 20  # rows whose median and spread are frozen
NUM_RECENT = 40
MAX_TRACE = 256
MAX_WARM_UP = 200  # rows; a schedule that rises longer is no warm-up
MAD_TO_SIGMA = 1.4826


class Asked:
    """What a rule has asked of a history since `begin`: how the doctor knows which rules could look at all.

    A metric that is not there is not the same as one that is still too short: a rule may go on without the former.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was asked so far."""
        self.num_met, self.num_short = 0, 0
        self.missing: set[str] = set()

    def take(self) -> "Asked":
        """Return what was asked so far, and forget it."""
        taken = Asked()
        taken.num_met, taken.num_short, taken.missing = self.num_met, self.num_short, self.missing
        self.begin()
        return taken

    def add(self, other: "Asked") -> None:
        """Take down what was asked elsewhere, too."""
        self.num_met += other.num_met
        self.num_short += other.num_short
        self.missing |= other.missing

    def note(self, *, is_met: bool) -> bool:
        """Take down whether there were enough rows, and return it."""
        self.num_met += is_met
        self.num_short += not is_met
        return is_met

    @property
    def only_missing(self) -> bool:
        """Whether everything that was asked for has not been measured yet."""
        return bool(self.missing) and not self.num_met and not self.num_short

    @property
    def could_look(self) -> bool:
        """Whether there was something to look at, and enough of it."""
        return self.num_met > 0 and self.num_short == 0


class Series:
    """One metric.

    Attributes:
        start: The run's first three finite values; they outlast a resume.
        baseline: The first 20 finite values after warm-up, then frozen; rules compare against them, never against a
            window that follows a fault.
        recent: The last 40 finite ``(step, value)``.
        trace: At most 256 ``(step, value)`` of the whole run; when full, neighbours are averaged.
        count: Finite values since the anchor; ``num_after`` of them came after the baseline.
        first_step: Step of the first of them.
        num_bad: Values that were NaN or infinite; ``first_bad`` is the step of the first.
    """

    def __init__(self, asked: Asked | None = None, start: Sequence[float] = ()) -> None:
        self.asked = asked if asked is not None else Asked()
        self.start = list(start)
        self.baseline: list[float] = []
        self.recent: deque[tuple[int, float]] = deque(maxlen=NUM_RECENT)
        self.trace: list[tuple[int, float]] = []
        self.count = 0
        self.num_after = 0
        self.first_step: int | None = None
        self.num_bad = 0
        self.first_bad: int | None = None
        self._stride, self._pending = 1, [0.0, 0.0, 0.0]  # rows per trace point; sum of steps, of values, count
        self._medians: dict[int, float] = {}
        self._spreads: dict[str, tuple[float, float]] = {}  # by scale

    def add(self, step: int, value: float, *, is_warm: bool = True) -> None:
        """Take one value; ``is_warm`` says that the learning rate has stopped rising."""
        if not math.isfinite(value):
            self.num_bad += 1
            self.first_bad = step if self.first_bad is None else self.first_bad
            return
        self.count += 1
        self.first_step = step if self.first_step is None else self.first_step
        self._medians.clear()
        if len(self.start) < NUM_START:
            self.start.append(value)
        if len(self.baseline) == NUM_BASELINE:
            self.num_after += 1
        elif is_warm:
            self.baseline.append(value)
            self._spreads.clear()
        self.recent.append((step, value))
        self._thin(step, value)

    @property
    def last(self) -> float:
        """The newest finite value."""
        return self.recent[-1][1]

    @property
    def last_step(self) -> int:
        """Its step."""
        return self.recent[-1][0]

    @property
    def rows_per_point(self) -> int:
        """Rows that a point of `trace` is the mean of."""
        return self._stride

    def shape(self) -> list[tuple[int, float]]:
        """Return the metric's course for a fit: the thinned trace, then the recent rows as they were."""
        first = self.recent[0][0] if self.recent else 0
        return [point for point in self.trace if point[0] < first] + list(self.recent)

    def is_armed(self, num_rows: int) -> bool:
        """Tell whether the baseline is complete and ``num_rows`` rows came after it."""
        return self.asked.note(
            is_met=len(self.baseline) == NUM_BASELINE and self.num_after >= num_rows,
        )

    def recent_values(self, num_rows: int) -> list[float]:
        """Return the last values, oldest first."""
        return [value for _, value in islice(self.recent, max(0, len(self.recent) - num_rows), None)]

    def recent_median(self, num_rows: int) -> float:
        """Return the median of the last values."""
        if num_rows not in self._medians:
            self._medians[num_rows] = median(self.recent_values(num_rows))
        return self._medians[num_rows]

    def baseline_median(self) -> float:
        """Return the baseline's median."""
        return self.baseline_spread("linear", lambda value: value)[0]

    def baseline_spread(self, scale: str, transform: Callable[[float], float]) -> tuple[float, float]:
        """Return the frozen baseline's median and its spread in σ (1.4826 × MAD) on a scale; computed once.

        Args:
            scale: Name of the transform.
            transform: To the scale.
        """
        if scale not in self._spreads:
            center = transform(median(self.baseline))
            self._spreads[scale] = center, MAD_TO_SIGMA * median(abs(transform(v) - center) for v in self.baseline)
        return self._spreads[scale]

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {
            "start": list(self.start),
            "baseline": list(self.baseline),
            "recent": [list(point) for point in self.recent],
            "trace": [list(point) for point in self.trace],
            "count": [self.count, self.num_after, self.first_step],
            "bad": [self.num_bad, self.first_bad],
            "thinning": [self._stride, list(self._pending)],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], asked: Asked | None = None) -> "Series":
        """Rebuild a series from `state`."""
        series = cls(asked)
        series.start, series.baseline = list(state["start"]), list(state["baseline"])
        series.recent.extend((int(step), value) for step, value in state["recent"])
        series.trace = [(int(step), value) for step, value in state["trace"]]
        series.count, series.num_after, series.first_step = state["count"]
        series.num_bad, series.first_bad = state["bad"]
        series._stride, series._pending = state["thinning"][0], list(state["thinning"][1])
        return series

    def _thin(self, step: int, value: float) -> None:
        pending = self._pending
        pending[0] += step
        pending[1] += value
        pending[2] += 1
        if pending[2] < self._stride:
            return
        self.trace.append((round(pending[0] / pending[2]), pending[1] / pending[2]))
        self._pending = [0.0, 0.0, 0.0]
        if len(self.trace) == MAX_TRACE:
            pairs = zip(self.trace[0::2], self.trace[1::2], strict=True)
            self.trace = [((a + c) // 2, (b + d) / 2) for (a, b), (c, d) in pairs]
            self._stride *= 2


class History:
    """All metrics of a run, fed one row per logged update.

    Attributes:
        before: Of a resumed run, each metric's last values before it was stopped.
        asked: What rules have asked (`Asked`).

    Example:
        >>> history = History()
        >>> for step in range(1, 31):
        ...     history.add(step, {"entropy": 1.0, "kl": 0.01 * step})
        >>> history.num_rows, history["entropy"].last, history.has("reward")
        (30, 1.0, False)
    """

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.asked = Asked()
        self.num_rows = 0
        self.step = 0
        self.anchored_at = 0
        self.before: dict[str, list[float]] = {}
        self.first_step: int | None = None
        self._learning_rate: float | None = None
        self._is_warm = False
        self._starts: dict[str, list[float]] = {}  # of series from before the anchor

    def __getitem__(self, name: str) -> Series:
        """Return a metric's series."""
        return self.series[name]

    def has(self, *names: str, num_rows: int = 1) -> bool:
        """Tell whether all these metrics have at least so many finite values."""
        is_there, is_met = True, True
        for name in names:
            series = self.series.get(name)
            if series is None:
                self.asked.missing.add(name)
                is_there = False
            elif series.count < num_rows:
                is_met = False
        return is_there and self.asked.note(is_met=is_met)

    def add(self, step: int, row: Mapping[str, float]) -> None:
        """Take the values of one row; a name that is missing was not measured, which is not the same as NaN."""
        self.num_rows += 1
        self.step = step
        self.first_step = step if self.first_step is None else self.first_step
        is_warm = self._watch_warm_up(row)
        for name, value in row.items():
            if name not in self.series:
                self.series[name] = Series(self.asked, self._starts.get(name, ()))
            self.series[name].add(step, float(value), is_warm=is_warm)

    def stride(self) -> float:
        """Return updates per logged row, so that rules count updates and not rows."""
        if self.num_rows < 2 or self.first_step is None:
            return 1.0
        return max(1.0, (self.step - self.first_step) / (self.num_rows - 1))

    def anchor(self, step: int) -> None:
        """Begin anew after a known event, such as a resume: baselines start here; `start` and `before` remember."""
        self.before = {name: series.recent_values(NUM_BASELINE) for name, series in self.series.items()}
        self._starts |= {name: series.start for name, series in self.series.items()}
        self.series, self.num_rows, self.anchored_at, self.first_step = {}, 0, step, None
        self._is_warm, self._learning_rate = False, None

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {
            "series": {name: series.state() for name, series in self.series.items()},
            "rows": [self.num_rows, self.step, self.anchored_at, self.first_step],
            "warm": [self._is_warm, self._learning_rate],
            "starts": {name: list(start) for name, start in self._starts.items()},
            "before": {name: list(values) for name, values in self.before.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "History":
        """Rebuild a history from `state`."""
        history = cls()
        history.series = {name: Series.from_state(series, history.asked) for name, series in state["series"].items()}
        history.num_rows, history.step, history.anchored_at, history.first_step = state["rows"]
        history._is_warm, history._learning_rate = state["warm"]
        history._starts = {name: list(start) for name, start in state["starts"].items()}
        history._starts = {name: list(start) for name, start in state["starts"].items()}
        history.before = {name: list(values) for name, values in state["before"].items()}
        return history

    def _watch_warm_up(self, row: Mapping[str, float]) -> bool:
        """Tell whether the learning rate has stopped rising; a run that never logs it counts as warm."""
        rate = row.get("learning_rate")
        if self._is_warm or rate is None:  # a row without a rate, an evaluation's perhaps, says nothing
            return self._is_warm or self._learning_rate is None
        rises = self._learning_rate is None or rate > self._learning_rate * (1 + 1e-9)
        self._learning_rate = rate
        self._is_warm = not rises or self.num_rows > MAX_WARM_UP
        return self._is_warm
