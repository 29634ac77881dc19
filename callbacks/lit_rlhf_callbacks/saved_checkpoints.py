"""Which checkpoints of a run are on disk, and how old they are."""

from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


def newest_checkpoint(trainer: Trainer, until: float) -> Path | None:
    """Return the newest checkpoint that was written by some time.

    Args:
        trainer: Its ``ModelCheckpoint`` callbacks know the folders.
        until: As ``time.time()`` gives it.
    """
    folders = {c.dirpath for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.dirpath}
    found = [path for folder in folders for path in Path(folder).glob("*.ckpt")]
    old_enough = [path for path in found if path.stat().st_mtime <= until]
    return max(old_enough, key=lambda path: path.stat().st_mtime, default=None)
