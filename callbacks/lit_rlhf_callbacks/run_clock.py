"""The time a run has spent training, summed over its resumes."""

from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from lightning.pytorch import Trainer

_KEY = "lit_rlhf_clock"


class RunClock:
    """Hours from the start of training on, evaluation and checkpoints included, loading the model not.

    Several callbacks may share a clock: starting a started one changes nothing.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._hours = 0.0  # of earlier legs of the run
        self._device_hours = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Start, or go on."""
        if self._started is None:
            self._started = monotonic()

    def stop(self) -> None:
        """Stop; the hours so far stay."""
        self._hours, self._device_hours = self.read()
        self._started = None

    def read(self) -> tuple[float, float]:
        """Return wall-clock hours, and device hours: those times the number of ranks that spent them."""
        running = (monotonic() - self._started) / 3600 if self._started is not None else 0.0
        return self._hours + running, self._device_hours + running * self.world_size

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Put the hours into a checkpoint; every callback that shows hours does, so any of them can be left out."""
        hours, device_hours = self.read()
        checkpoint[_KEY] = {"hours": hours, "device_hours": device_hours}

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint's hours, where it has them."""
        saved = checkpoint.get(_KEY, {"hours": 0.0, "device_hours": 0.0})
        self._hours, self._device_hours = saved["hours"], saved["device_hours"]


_CLOCKS: "WeakKeyDictionary[Trainer, RunClock]" = WeakKeyDictionary()


def run_clock(trainer: Trainer) -> RunClock:
    """Return a trainer's one clock."""
    if trainer not in _CLOCKS:
        _CLOCKS[trainer] = RunClock(trainer.world_size)
    return _CLOCKS[trainer]
