"""Finding ``module.function`` in a file of the current folder or in anything installed."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from lit_rlhf.rewards.wording import describe_error, describe_place, did_you_mean, place_in_traceback
from lit_rlhf_callbacks.errors import UserError


def load_function(path: str) -> Callable[..., Any]:
    """Import a function or class by its dotted path.

    The current folder is put first on the import path and stays there, so that the user's file can import its
    neighbours when it is called.

    Args:
        path: ``module.function``; the module may be dotted itself. ``folder/file.py:function`` means the same.

    Returns:
        The function, class or other callable.

    Raises:
        UserError: There is no such module or function, or importing the module failed.
    """
    module_name, _, name = _dotted(path).rpartition(".")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import_module(path, module_name)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        listing = f"; it has: {', '.join(sorted(known))}" if known and _is_local(_file_of(module)) else ""
        raise UserError(
            f"reward function '{path}': there is no '{name}' in {_shown_file(module)}"
            f"{did_you_mean(name, known)}{listing}"
        )
    function: Callable[..., Any] = getattr(module, name)
    if not callable(function):
        raise UserError(f"reward function '{path}': it is of type {type(function).__name__}, not a function")
    return function


def _dotted(path: str) -> str:
    """Turn a file's path and a name into the dotted path."""
    as_file = re.fullmatch(r"(?P<file>.+)\.py[:.](?P<name>\w+)", path)
    if as_file is None:
        return path
    file = Path(as_file["file"])
    if file.is_absolute() or any("." in part for part in file.parts):
        raise UserError(
            f"reward function '{path}': the file must be in this folder or below it ({Path.cwd()}), in folders without "
            "a dot in their names"
        )
    return ".".join([*file.parts, as_file["name"]])


def _import_module(path: str, module_name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may be younger than Python's listing of the folder
    own_file = Path.cwd() / f"{module_name.replace('.', '/')}.py"
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            reason = (
                f"there is no file {own_file.relative_to(Path.cwd())} in {Path.cwd()} and no installed '{error.name}'"
            )
        elif isinstance(error, SyntaxError) and error.filename:
            reason = f"cannot read {describe_place(error.filename, error.lineno or 1)}: SyntaxError: {error.msg}"
        else:
            place = place_in_traceback(error.__traceback__, _is_local)
            reason = f"importing '{module_name}' failed{place}: {describe_error(error)}"
        raise UserError(f"reward function '{path}': {reason}") from error
    if own_file.exists() and Path(_file_of(module)).resolve() != own_file.resolve():
        raise UserError(
            f"reward function '{path}': {own_file.name} in this folder is hidden by the module '{module_name}' "
            f"that is already loaded; give the file another name"
        )
    return module


def _file_of(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or "")


def _is_local(file: str) -> bool:
    """Whether a source file is the user's: in the current folder, but not in a virtual environment there."""
    return Path(file).is_relative_to(Path.cwd()) and "site-packages" not in file


def _shown_file(module: ModuleType) -> str:
    file = _file_of(module)
    return str(Path(file).relative_to(Path.cwd())) if _is_local(file) else f"the module '{module.__name__}'"
