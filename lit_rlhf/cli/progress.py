"""A progress bar that counts updates of the whole run, not batches of an epoch that nobody asked for."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar


class UpdateProgressBar(RichProgressBar):
    """Shows ``global_step`` of ``max_steps``; without ``max_steps``, an epoch's batches as Lightning does."""

    def _get_train_description(self, current_epoch: int) -> str:
        return "Updates" if self.trainer.max_steps > 0 else f"Epoch {current_epoch}"

    @property
    def total_train_batches(self) -> int | float:
        """The length of the bar."""
        return self.trainer.max_steps if self.trainer.max_steps > 0 else super().total_train_batches

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """Leave out batches per second, which a rollout in every n-th batch makes meaningless; metrics get the room."""
        description, bar, processed, time, _ = super().configure_columns(trainer)
        bar.bar_width = 12
        return [description, bar, processed, time]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar."""
        super().on_train_batch_end(
            trainer, pl_module, outputs, batch, trainer.global_step - 1 if trainer.max_steps > 0 else batch_idx
        )
