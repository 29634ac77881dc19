"""From jsonargparse's account of everything it tried to the one line that says what the user got wrong.

jsonargparse tries every type that a setting may have and lists why each failed. The line that matters is the
innermost one of the branch that got furthest: ``Option 'group_sise' is not accepted`` below ``model`` and ``GRPO``.
"""

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, get_args, get_type_hints

from lightning.pytorch import Callback, LightningDataModule
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import Strategy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lit_rlhf.algorithms import Algorithm

# What a setting of this name must be a class of, to look for the name that was meant.
BASES: dict[str, type] = {
    "model": Algorithm,
    "data": LightningDataModule,
    "callbacks": Callback,
    "logger": Logger,
    "strategy": Strategy,
    "optimizer": Optimizer,
    "lr_scheduler": LRScheduler,
}

_KEY = re.compile(r"(?:Parser key|Problem with given class_path) ['\"](?P<name>[^'\"]+)['\"]:")
_UNKNOWN = [
    re.compile(r"Option '(?P<option>[^']+)' is not accepted"),
    re.compile(r"Group '(?P<group>[^']+)' does not accept option '(?P<option>[^']+)'"),
    re.compile(r"Subcommand '[^']+' does not accept option '(?P<option>[^']+)'"),
    re.compile(r"[Uu]nrecognized arguments: --(?P<option>[^\s=]+)"),
]
_CLASS = re.compile(r"Expected a dot import path string: (?P<value>\S+)")
_VALUE = re.compile(r"Expected an? (?P<type>.+?)\. Got value: (?P<value>.*)")
_REQUIRED = re.compile(r"the following arguments are required: (?P<names>.+)")
_GIVEN_CLASS = re.compile(r"class_path='(?P<name>[^']+)'")
_NO_NEWS = ("Expected a <class 'NoneType'>", "Not a valid subclass of", "Expected a path but")


def readable(message: str, known_keys: Iterable[str]) -> str:
    """Say in one line what a parser's message is about.

    Args:
        message: What jsonargparse says.
        known_keys: All keys of the parser, such as ``trainer.max_steps``.

    Returns:
        ``<key path>: <what is wrong>``, with the closest known name where a name is unknown.

    Example:
        >>> readable("Subcommand 'fit' does not accept option 'trainer.max_stepz'", ["trainer.max_steps"])
        'trainer.max_stepz: no such setting; did you mean trainer.max_steps?'
    """
    keys, owner = _path(message)
    if match := _REQUIRED.search(message):
        names = ", ".join(name.partition(".")[2] or name for name in match["names"].split(", "))
        return f"{names}: must be given, in a --config (such as --config grpo) or as --{names.split(', ')[0]}"
    for pattern in _UNKNOWN:
        if match := pattern.search(message):
            return _unknown_setting(match, keys, owner, message, known_keys)
    if match := _CLASS.search(message):
        base = BASES.get(keys[-1] if keys else "")
        return f"{'.'.join(keys)}: no class {match['value']}{_meant(match['value'], _names(base) if base else [])}"
    if match := _VALUE.search(message):
        return f"{'.'.join(keys)}: expected {_plain_type(match['type'])}, got {match['value']}"
    return ": ".join(filter(None, [".".join(keys), _innermost(message)]))


def _path(message: str) -> tuple[list[str], str | None]:
    """Collect the keys that lead to the problem, and the class whose settings are meant."""
    keys: list[str] = []
    owner = None
    for match in _KEY.finditer(message):
        if match[0].startswith("Problem"):
            owner = match["name"]
            keys.append("init_args")
        else:
            keys.append(match["name"])
    return keys, owner


def _unknown_setting(
    match: re.Match[str], keys: list[str], owner: str | None, message: str, known_keys: Iterable[str]
) -> str:
    option, group = match["option"], match.groupdict().get("group")
    if owner is None:
        return f"{option}: no such setting{_meant(option, known_keys)}"
    if given := _GIVEN_CLASS.search(message):  # a factory, such as an optimiser, whose class stands in its own text
        owner, keys = given["name"], [*keys, "init_args"]
    names = _settings(owner, group)
    path = ".".join([*keys, *([group] if group else []), option])
    return f"{path}: no such setting of {group or owner.rpartition('.')[2]}{_meant(option, names)}"


def _settings(class_path: str, group: str | None) -> list[str]:
    module, _, name = class_path.rpartition(".")
    owner = getattr(import_module(module), name)
    if group is not None:
        hint = get_type_hints(owner).get(group)
        settings = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
        return [field.name for field in fields(settings)] if settings else []
    return [parameter for kind in owner.__mro__ for parameter in inspect.signature(kind.__init__).parameters]


def _names(base: type) -> list[str]:
    return [name for child in base.__subclasses__() for name in [child.__name__, *_names(child)]]


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _plain_type(text: str) -> str:
    return re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", text).replace("typing.Literal", "one of ")


def _innermost(message: str) -> str:
    """Return the first reason that is news, without the list of what else was tried."""
    lines = [line.strip().removeprefix("- ") for line in message.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_NO_NEWS) and not _KEY.match(line)]
    if "Errors:" in lines:
        lines = lines[lines.index("Errors:") + 1 :]
    return lines[0] if lines else message


def known_keys(parser: Any) -> list[str]:
    """List every key a subcommand's parser has."""
    return [action.dest for action in parser._actions if action.dest]
