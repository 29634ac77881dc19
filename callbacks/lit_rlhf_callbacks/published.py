"""Putting a callback's metrics where others find them, without taking a name that the project uses itself."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer


class Published:
    """One callback's metrics; a name that the project logs, or returns, stays the project's from then on."""

    def __init__(self) -> None:
        self.theirs: set[str] = set()
        self._own: set[str] = set()

    def add(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, metrics: Mapping[str, float], shown: str = ""
    ) -> dict[str, float]:
        """Log values from ``on_train_batch_end`` and add them to the update's ``outputs["metrics"]``.

        Without a logger, ``self.log`` only fills the trainer's dicts of metrics, at half a millisecond per value; then
        they are filled directly.

        Args:
            trainer: Its ``callback_metrics`` say what the project logs.
            pl_module: The module that logs.
            outputs: Of the training step.
            metrics: By name.
            shown: The one that the progress bar shows, too.

        Returns:
            Those that were added.
        """
        returned = outputs.setdefault("metrics", {}) if isinstance(outputs, dict) else {}
        shared = trainer.callback_metrics
        self.theirs |= (set(returned) | set(shared)) - self._own
        added = {name: value for name, value in metrics.items() if name not in self.theirs}
        self._own |= set(added)
        returned.update(added)
        if trainer.loggers:
            for name, value in added.items():
                pl_module.log(name, value, prog_bar=name == shown, batch_size=1)
            return added
        tensors = {name: torch.tensor(float(value), device=pl_module.device) for name, value in added.items()}
        shared |= tensors
        trainer.logged_metrics.update(tensors)
        if shown in added:
            trainer.progress_bar_metrics[shown] = float(added[shown])
        return added
