"""Finding ``module.function`` in a file of the current folder or in anything installed."""

import importlib
import importlib.util
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
        path: ``module.function``; the module may be dotted itself.

    Returns:
        The function, class or other callable.

    Raises:
        UserError: There is no such module or function, or importing the module failed.
    """
    module_name, _, name = path.rpartition(".")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import_module(path, module_name)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        listing = f"; it has: {', '.join(sorted(known))}" if known and _is_local(module) else ""
        raise UserError(
            f"reward function '{path}': there is no '{name}' in {_shown_file(module)}"
            f"{did_you_mean(name, known)}{listing}"
        )
    function: Callable[..., Any] = getattr(module, name)
    if not callable(function):
        raise UserError(f"reward function '{path}': it is of type {type(function).__name__}, not a function")
    return function


def _import_module(path: str, module_name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may be younger than Python's listing of the folder
    try:
        module = importlib.import_module(module_name)
    except SyntaxError as error:
        place = describe_place(error.filename, error.lineno or 1) if error.filename else module_name
        raise UserError(f"reward function '{path}': cannot read {place}: {describe_error(error)}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and _is_part_of(error.name, module_name):
            raise UserError(
                f"reward function '{path}': there is no file {module_name.replace('.', '/')}.py in {Path.cwd()} "
                f"and no installed module '{error.name}'"
            ) from error
        place = _place_of_import_error(error, module_name)
        raise UserError(f"reward function '{path}': importing it failed{place}: {describe_error(error)}") from error
    own_file = Path.cwd() / f"{module_name.replace('.', '/')}.py"
    if own_file.exists() and not own_file.samefile(getattr(module, "__file__", None) or sys.executable):
        raise UserError(
            f"reward function '{path}': {own_file.name} in this folder is hidden by the module '{module_name}' "
            f"that is already loaded; give the file another name"
        )
    return module


def _is_part_of(missing: str, module_name: str) -> bool:
    """Whether the module that was not found is the one asked for (or a package it lies in), not one it imports."""
    return module_name == missing or module_name.startswith(f"{missing}.")


def _place_of_import_error(error: BaseException, module_name: str) -> str:
    try:
        spec = importlib.util.find_spec(module_name)
    except (ImportError, AttributeError, ValueError):  # the package around it is what failed
        spec = None
    return place_in_traceback(error.__traceback__, spec.origin) if spec and spec.origin else ""


def _is_local(module: ModuleType) -> bool:
    return Path(getattr(module, "__file__", None) or sys.executable).is_relative_to(Path.cwd())


def _shown_file(module: ModuleType) -> str:
    if not _is_local(module):
        return f"the module '{module.__name__}'"
    return str(Path(str(module.__file__)).relative_to(Path.cwd()))
