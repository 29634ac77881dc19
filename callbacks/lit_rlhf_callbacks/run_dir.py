"""Where a run writes: ``runs/<name>/`` under the trainer's root folder, decided once and the same on every rank."""

import os
from datetime import datetime
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from lightning.pytorch import Trainer

from lit_rlhf_callbacks.errors import UserError

_FOLDERS: "WeakKeyDictionary[Trainer, Path]" = WeakKeyDictionary()


def assign_run_dir(
    trainer: Trainer,
    name: str | None = None,
    resume_from: str | os.PathLike[str] | None = None,
    label: str | None = None,
) -> Path:
    """Decide a trainer's run directory; the first call decides, later ones only read.

    Rank 0 creates the folder and tells the others, so with several ranks call this in ``setup`` or later; with
    ``resume_from`` there is nothing to agree on, and it may be called any time.

    Args:
        trainer: Whose run it is.
        name: Folder name under ``runs/``. A second run of the same name gets ``-2``; nothing is ever overwritten.
            None makes one from the time and ``label``.
        resume_from: An existing run directory to go on in.
        label: What to call the run beside its time; None takes the module's class name.

    Returns:
        The absolute path.

    Raises:
        UserError: If ``resume_from`` is no folder.
        RuntimeError: If the ranks cannot talk to each other yet.
    """
    if trainer not in _FOLDERS:
        _FOLDERS[trainer] = _existing(resume_from) if resume_from is not None else _agreed(trainer, name, label)
    return _FOLDERS[trainer]


def run_dir(trainer: Trainer) -> Path:
    """Return a trainer's run directory, decided now if it is not yet.

    Its name is the ``run_name`` of the first callback that has one, so it does not matter which callback asks first.
    """
    names = [getattr(callback, "run_name", None) for callback in trainer.callbacks]  # type: ignore[attr-defined]
    return assign_run_dir(trainer, name=next(filter(None, names), None))


def _existing(folder: str | os.PathLike[str]) -> Path:
    if not Path(folder).is_dir():
        raise UserError(f"resume: '{folder}' is no run directory; give the folder that holds config.yaml")
    return Path(folder).resolve()


def _agreed(trainer: Trainer, name: str | None, label: str | None) -> Path:
    if trainer.world_size > 1 and not torch.distributed.is_initialized():
        raise RuntimeError("the ranks are not connected yet: ask for the run directory in `setup` or later")
    folder = None
    if trainer.is_global_zero:
        label = label or type(trainer.lightning_module).__name__.lower()
        name = name or f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{label}"
        folder = _created(Path(trainer.default_root_dir).resolve() / "runs", name)
    return trainer.strategy.broadcast(folder)  # type: ignore[return-value]


def _created(parent: Path, name: str) -> Path:
    """Make a new folder; ``mkdir`` decides when two runs want the same name at once."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder
