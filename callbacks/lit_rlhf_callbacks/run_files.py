"""The run directory's files: one row of metrics per update, checkpoints, the final model."""

import sys
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf_callbacks.metrics_file import MetricsFile, Row
from lit_rlhf_callbacks.open_row import OpenRow, is_empty
from lit_rlhf_callbacks.run_clock import run_clock
from lit_rlhf_callbacks.run_dir import run_dir


class RunFiles(Callback):
    """Keep a run in one folder, ``runs/<name>/`` under the trainer's ``default_root_dir``.

    Writes ``metrics.csv``: row ``global_step = n`` holds what update n computed and every evaluation made after it and
    before update n + 1; row 0 holds evaluations before the first update. The open row is part of the checkpoint, and a
    resume from update n moves later rows to ``metrics.csv.discarded``, so no row is lost and none is doubled.
    ``ModelCheckpoint`` callbacks without a ``dirpath`` write to ``checkpoints/``. At the end, and on Ctrl-C or an error
    when there is one process only, a module with a method ``save_model(folder)`` writes ``model/``.

    Args:
        name: The folder's name; a second run of the same name gets ``-2``. None takes the time and the module's class.

    Example::

        Trainer(callbacks=[RunFiles(name="baseline"), ModelCheckpoint(every_n_train_steps=50)])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self, name: str | None = None) -> None:
        self.run_name = name
        self.folder: Path | None = None
        self._row = OpenRow()
        self._file: MetricsFile | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Decide the folder and send checkpoints there; ``ModelCheckpoint`` comes last, so it has not decided yet."""
        if stage != "fit":
            return
        self.folder = run_dir(trainer)
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = str(self.folder / "checkpoints")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the row to go on with."""
        run_clock(trainer).start()
        on_disk: Row = {}
        if trainer.is_global_zero:
            assert self.folder is not None
            self._file = MetricsFile(self.folder / "metrics.csv")
            on_disk = self._file.go_on_from(trainer.global_step)
        self._row.start(trainer, on_disk)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Open a row when an update has been made."""
        previous = self._row.add_micro_batch(trainer, outputs)
        if previous is not None:
            self._write(previous)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add an evaluation to the open row; a sanity check over part of the data is no evaluation."""
        partial = trainer.sanity_checking and trainer.num_sanity_val_batches != trainer.num_val_batches
        if self.folder is not None and not partial:
            self._row.add_logged(trainer, "validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add what is logged once per epoch."""
        self._row.add_logged(trainer, "epoch")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last row and the final model."""
        run_clock(trainer).stop()
        self._write(self._row.read())
        self._save_model(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say where everything is; the last checkpoint has been written by now."""
        self._say_how_to_resume(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Keep what there is; with several ranks the model is not gathered, since the others may not take part."""
        if self._file is not None and self._row.state() is not None:
            self._write(self._row.read())
            if trainer.world_size == 1 and trainer.global_step > 0:
                try:
                    self._save_model(pl_module)
                except Exception as error:  # the run's own error is the one to be seen
                    rank_zero_warn(f"RunFiles: model/ is not written: {error}")
        self._say_how_to_resume(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the hours, shared by all callbacks that show them."""
        run_clock(trainer).save(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the saved hours."""
        run_clock(trainer).load(checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """Return the open row: a checkpoint is written while its update's row is open."""
        return {"row": self._row.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the open row back."""
        self._row.load(state_dict["row"])

    def _write(self, row: Row) -> None:
        if self._file is None:
            return
        self._file.declare(self._row.read())
        if not is_empty(row):  # no row 0 where nothing was evaluated
            self._file.put(row)

    def _save_model(self, pl_module: LightningModule) -> None:
        save_model = getattr(pl_module, "save_model", None)
        if callable(save_model) and self.folder is not None:
            save_model(self.folder / "model")

    def _say_how_to_resume(self, trainer: Trainer) -> None:
        if self.folder is None or not trainer.is_global_zero:
            return
        folders = {c.dirpath for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.dirpath}
        checkpoints = [path for folder in folders for path in Path(folder).glob("*.ckpt")]
        print(f"The run is in {self.folder}")
        if checkpoints:
            newest = max(checkpoints, key=lambda path: path.stat().st_mtime)
            print(f"To resume it: {_resume_command(self.folder, newest)}")


def _resume_command(folder: Path, checkpoint: Path) -> str:
    program = Path(sys.argv[0])
    if program.parts[-2:] == ("lit_rlhf", "__main__.py"):
        return f"python -m lit_rlhf fit --resume {folder}"
    if program.name == "lit-rlhf":
        return f"lit-rlhf fit --resume {folder}"
    return f'trainer.fit(..., ckpt_path="{checkpoint}")'
