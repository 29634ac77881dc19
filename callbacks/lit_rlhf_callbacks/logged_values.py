"""What an update, and the evaluations after it, computed: for modules that return their metrics and any other."""

from collections.abc import Mapping
from typing import Any, Literal

from lightning.pytorch import Trainer

Source = Literal["validation", "epoch"]


class LoggedValues:
    """Collect the values of the open window, in whatever way the module shows them.

    ``outputs["metrics"]`` counts as it is. Of a module that logs with ``self.log`` only, the values are averaged over
    the window's micro-batches. A name belongs to whoever used it first (a training step, validation, the end of an
    epoch), because Lightning goes on showing the last value of every name.
    """

    def __init__(self) -> None:
        self.returned: dict[str, Any] = {}  # the very dict that later callbacks of this batch still add to
        self._returned_names: set[str] = set()
        self._step_names: set[str] = set()
        self._names: dict[Source, set[str]] = {"validation": set(), "epoch": set()}
        self._sums: dict[str, tuple[Any, int]] = {}

    def add_micro_batch(self, trainer: Trainer, outputs: Any) -> None:
        """Take one micro-batch's values; call it on every rank from ``on_train_batch_end``."""
        self._returned_names |= set(self.returned)
        self.returned = outputs.setdefault("metrics", {}) if isinstance(outputs, dict) else {}
        known = self._returned_names.union(self.returned, *self._names.values())
        for name, value in trainer.callback_metrics.items():
            if name not in known:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value, count + 1)
        self._step_names |= set(self._sums)

    def close_window(self) -> dict[str, float]:
        """Return what the module logged without returning it: means over the window's micro-batches."""
        sums, self._sums = self._sums, {}
        return {name: float(total) / count for name, (total, count) in sums.items() if name not in self.returned}

    def just_logged(self, trainer: Trainer, source: Source) -> dict[str, float]:
        """Return the values whose names ``source`` logs; call it on every rank, when ``source`` ends."""
        taken = self._step_names.union(self._returned_names, self.returned)
        taken |= self._names["epoch" if source == "validation" else "validation"]
        values = {name: float(value) for name, value in trainer.callback_metrics.items() if name not in taken}
        self._names[source] |= set(values)
        return values


def as_floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Turn scalars, numbers or tensors, into plain floats."""
    return {name: float(value) for name, value in values.items()}
