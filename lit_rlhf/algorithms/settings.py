"""Settings as plain values: what a YAML holds, what a checkpoint may hold, what a module is rebuilt from."""

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import Any, TypeVar

from lightning.pytorch import LightningModule

Settings = TypeVar("Settings")


def as_settings(kind: type[Settings], value: Settings | dict[str, Any]) -> Settings:
    """Return ``value`` as its dataclass; a checkpoint gives back the plain dict that was saved."""
    return kind(**value) if isinstance(value, dict) else value


def as_factory(value: Callable[..., Any] | dict[str, Any]) -> Callable[..., Any]:
    """Return a function that makes an optimizer or scheduler from what it is applied to.

    Args:
        value: A factory, as LightningCLI passes it, or ``{"class_path": ..., "init_args": {...}}`` as in a YAML.
    """
    if callable(value):
        return value
    module, _, name = value["class_path"].rpartition(".")
    kind = getattr(import_module(module), name)
    return lambda target: kind(target, **value.get("init_args", {}))


def save_plain_hyperparameters(module: LightningModule) -> None:
    """Save a module's settings so that Lightning's default ``weights_only`` loading can read them back.

    A setting that only exists as a Python object (a reward that is a lambda, say) is left out: a module rebuilt from
    the checkpoint takes its default, or what the caller passes to ``load_from_checkpoint``.
    """
    module.save_hyperparameters()
    for name, value in list(module.hparams.items()):
        plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        if _is_plain(plain):
            module.hparams[name] = plain
        else:
            del module.hparams[name]


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
