"""The names a config may hold: the settings of a class, and the classes that a setting takes."""

import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_args, get_type_hints

from lightning.pytorch import Callback, LightningDataModule
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import Strategy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lit_rlhf.algorithms import Algorithm

BASES: dict[str, type] = {
    "model": Algorithm,
    "data": LightningDataModule,
    "callbacks": Callback,
    "logger": Logger,
    "strategy": Strategy,
    "optimizer": Optimizer,
    "lr_scheduler": LRScheduler,
}


def class_names(setting: str) -> list[str]:
    """Name the classes that a setting takes; none for a setting that takes no class."""
    return _subclasses(BASES[setting]) if setting in BASES else []


def setting_names(class_path: str) -> list[str]:
    """Name what a class can be configured with, its parents' settings included."""
    return [name for kind in _imported(class_path).__mro__ for name in inspect.signature(kind.__init__).parameters]


def group_setting_names(class_path: str, group: str) -> list[str]:
    """Name the fields of a setting that is itself a dataclass, such as ``sampling``."""
    hint = get_type_hints(_imported(class_path))[group]
    settings = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
    return [field.name for field in fields(settings)] if settings is not None else []


def parser_keys(parser: Any) -> list[str]:
    """Name every key a command's parser has, such as ``trainer.max_steps``."""
    return [action.dest for action in parser._actions if action.dest]


def _imported(class_path: str) -> Any:
    module, _, name = class_path.rpartition(".")
    return getattr(import_module(module), name)


def _subclasses(base: type) -> list[str]:
    children: list[type] = base.__subclasses__()
    return [name for child in children for name in [child.__name__, *_subclasses(child)]]
