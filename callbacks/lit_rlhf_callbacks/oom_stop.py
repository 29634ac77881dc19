"""Stopping a run that memory is not enough for, so that it can go on."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer


def save_for_later(trainer: Trainer) -> str:
    """Save a checkpoint in the middle of an update, where one process is all there is, and say where to go on."""
    if trainer.world_size > 1:  # nobody else would take part
        return "go on from the last checkpoint"
    folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
    path = Path(folder) / f"out-of-memory-step={trainer.global_step}.ckpt"
    trainer.save_checkpoint(path)
    return f"saved to {path}"


def rewind_window(checkpoint: dict[str, Any], num_done: int) -> None:
    """Let a checkpoint start at the open window's first micro-batch: gradients are not in it.

    Args:
        checkpoint: Lightning's, changed in place.
        num_done: micro-batches of the window that are counted as done.
    """
    loop = checkpoint["loops"]["fit_loop"]
    progress = loop["epoch_loop.batch_progress"]
    for counts in (progress["current"], progress["total"]):
        done = counts["completed"] - num_done
        counts.update(ready=done, started=done, processed=done, completed=done)
    progress["is_last_batch"] = False
    for loader in loop["state_dict"].get("combined_loader", []):
        loader["yielded"] = progress["current"]["completed"]
