"""Which update each checkpoint file of a run was saved after."""

from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


class SavedSteps:
    """Remember the updates of checkpoint files, so that the newest one from before a fault can be named."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self._saved_at: int | None = None  # a file is written after the hook that announces it

    def announce(self, trainer: Trainer) -> None:
        """Note that a checkpoint is about to be written."""
        self._saved_at = trainer.global_step

    def look(self, trainer: Trainer) -> None:
        """Take in the files written since the last look, if any was announced."""
        if self._saved_at is None:
            return
        folders = {c.dirpath for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.dirpath}
        found = {str(path) for folder in folders for path in Path(folder).glob("*.ckpt")}
        self.steps = {path: self.steps.get(path, self._saved_at) for path in found}
        self._saved_at = None

    def last_before(self, step: int) -> str | None:
        """Return the newest file that still exists and was saved before update ``step``."""
        old_enough = [(saved, path) for path, saved in self.steps.items() if saved < step and Path(path).exists()]
        return max(old_enough)[1] if old_enough else None
