"""Where the time between two updates goes: updates, evaluations, checkpoints."""

from collections.abc import Mapping
from time import monotonic
from typing import Any

PREFIX = "time/"


class Stopwatch:
    """Adds up the seconds between starts and stops; starting a started one, or stopping a stopped one, does nothing."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Run."""
        self._started = monotonic() if self._started is None else self._started

    def stop(self) -> None:
        """Rest."""
        if self._started is not None:
            self._seconds, self._started = self._seconds + monotonic() - self._started, None

    def take(self) -> float:
        """Return the seconds so far, and forget them."""
        taken, self._seconds = self._seconds, 0.0
        return taken


class WindowClock:
    """Times the open window of one rank; a module names the parts it times itself ``time/…``, too.

    A checkpoint's time ends where an evaluation or the next batch begins: there is no hook after a file is written.
    """

    def __init__(self) -> None:
        self.batches, self._checkpoints, self.evaluations = Stopwatch(), Stopwatch(), Stopwatch()

    def batch_starts(self) -> None:
        """Begin a micro-batch."""
        self._checkpoints.stop()
        self.batches.start()

    def checkpoint_starts(self) -> None:
        """Begin a checkpoint."""
        self._checkpoints.start()

    def evaluation_starts(self) -> None:
        """Begin an evaluation."""
        self._checkpoints.stop()
        self.evaluations.start()

    def close_window(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the seconds of the update just made, and of the evaluations and checkpoints since the one before it.

        Args:
            metrics: Of the window; what its parts ``time/…`` took, such as rollouts, is not the update's.
        """
        others = sum(float(value) for name, value in metrics.items() if name.startswith(PREFIX))
        between = {"time/evaluation": self.evaluations.take(), "time/checkpoint": self._checkpoints.take()}
        parts = {"time/update": max(0.0, self.batches.take() - others)}
        return parts | {name: seconds for name, seconds in between.items() if seconds}
