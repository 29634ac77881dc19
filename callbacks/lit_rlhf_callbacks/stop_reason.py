"""Why a callback ended a run early, for whoever records or reports how it ended."""

from weakref import WeakKeyDictionary

from lightning.pytorch import Trainer

_REASONS: "WeakKeyDictionary[Trainer, str]" = WeakKeyDictionary()


def note_stop(trainer: Trainer, reason: str) -> None:
    """Say, on every rank, that this trainer is being stopped.

    Args:
        trainer: Whose ``should_stop`` is being set.
        reason: One line.
    """
    _REASONS[trainer] = reason


def stop_reason(trainer: Trainer) -> str | None:
    """Return why a trainer was stopped, or None."""
    return _REASONS.get(trainer)
