"""Where the time between two updates goes: updates, evaluations, checkpoints."""

from collections.abc import Mapping
from time import monotonic
from typing import Any

PREFIX = "time/"


class WindowClock:
    """Times the open window of one rank; a module names the parts it times itself ``time/…``, too.

    A checkpoint's time ends where an evaluation or the next batch begins: there is no hook after a file is written.
    """

    def __init__(self) -> None:
        self._batches = 0.0
        self._batch: float | None = None
        self._saving: float | None = None
        self._saved = 0.0
        self._evaluation: float | None = None
        self._evaluated = 0.0

    def batch_starts(self) -> None:
        """Begin a micro-batch."""
        self._end_checkpoint()
        self._batch = monotonic()

    def batch_ends(self) -> None:
        """End it, after its backward and its update."""
        if self._batch is not None:
            self._batches, self._batch = self._batches + monotonic() - self._batch, None

    def checkpoint_starts(self) -> None:
        """Begin a checkpoint."""
        self._saving = monotonic() if self._saving is None else self._saving

    def evaluation_starts(self) -> None:
        """Begin an evaluation."""
        self._end_checkpoint()
        self._evaluation = monotonic()

    def evaluation_ends(self) -> None:
        """End it."""
        if self._evaluation is not None:
            self._evaluated, self._evaluation = self._evaluated + monotonic() - self._evaluation, None

    def close_window(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the seconds of the update just made, and of the evaluations and checkpoints since the one before it.

        Args:
            metrics: Of the window; what its parts ``time/…`` took, such as rollouts, is not the update's.
        """
        others = sum(float(value) for name, value in metrics.items() if name.startswith(PREFIX))
        parts = {"time/update": max(0.0, self._batches - others)}
        parts |= {"time/evaluation": self._evaluated} if self._evaluated else {}
        parts |= {"time/checkpoint": self._saved} if self._saved else {}
        self._batches = self._evaluated = self._saved = 0.0
        return parts

    def _end_checkpoint(self) -> None:
        if self._saving is not None:
            self._saved, self._saving = self._saved + monotonic() - self._saving, None
