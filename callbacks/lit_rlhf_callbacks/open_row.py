"""The row of an update while it is open: what the update computed, and every evaluation made before the next one."""

from typing import Any

from lightning.pytorch import Trainer

from lit_rlhf_callbacks.logged_values import LoggedValues, Source, as_floats
from lit_rlhf_callbacks.run_clock import run_clock

Row = dict[str, float]
STEP = "global_step"


class OpenRow:
    """Follow one trainer; rows come out in ascending order, each once, as `RunFiles` writes them.

    Values that other callbacks add to an update's metrics count whenever they come, so the order of callbacks does not
    matter.
    """

    def __init__(self) -> None:
        self._values = LoggedValues()
        self._row: Row | None = None
        self._returned: dict[str, Any] = {}  # the update's own metrics, to which later callbacks still add

    def start(self, trainer: Trainer, on_disk: Row | None = None) -> None:
        """Open the row to go on with, on every rank, when training starts.

        Args:
            trainer: Its ``global_step`` is the row's.
            on_disk: What is known of that row already; the checkpoint's values count before these.
        """
        saved = self._row if self._row is not None and self._row[STEP] == trainer.global_step else {}
        self._row = (on_disk or {}) | _opened(trainer) | saved

    def add_micro_batch(self, trainer: Trainer, outputs: Any) -> Row | None:
        """Take a micro-batch's values; return the former row when this one made an update."""
        previous = self.read()
        self._values.add_micro_batch(trainer, outputs)
        if trainer.global_step <= previous[STEP]:
            return None
        self._row = _opened(trainer) | self._values.close_window()
        self._returned = self._values.returned
        return previous

    def add_logged(self, trainer: Trainer, source: Source) -> None:
        """Take what an evaluation, or the end of an epoch, has just logged."""
        values = self._values.just_logged(trainer, source)
        self._row = (self._row if self._row is not None else _opened(trainer)) | values

    def read(self) -> Row:
        """Return the row as it stands."""
        assert self._row is not None
        return self._row | as_floats(self._returned)

    def state(self) -> Row | None:
        """Return plain data for a checkpoint, which is written while its update's row is open."""
        return self.read() if self._row is not None else None

    def load(self, state: Row | None) -> None:
        """Take the open row back."""
        self._row = state


def is_empty(row: Row) -> bool:
    """Tell whether a row says nothing: no update was made and nothing evaluated."""
    return row[STEP] == 0 and set(row) <= {STEP, "hours"}


def _opened(trainer: Trainer) -> Row:
    hours, _ = run_clock(trainer).read()
    return {STEP: trainer.global_step, "hours": hours}
