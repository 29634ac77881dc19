"""From what stands in a config (or is passed from Python) to reward functions with name, weight and settings."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lit_rlhf.rewards.builtin_rewards import BUILTINS
from lit_rlhf.rewards.load import load_function
from lit_rlhf.rewards.reward import OFFERED, Reward
from lit_rlhf.rewards.wording import describe_error, did_you_mean
from lit_rlhf_callbacks.errors import UserError

RewardSpec = str | dict[str, Any] | Callable[..., Any]
"""A built-in's name or ``module.function``; or a dict with ``function`` and, if wanted, ``weight``, ``name`` and the
function's settings; or, from Python, the function itself."""

SPEC_KEYS = ("function", "weight", "name")


def resolve(specs: Sequence[RewardSpec]) -> list[Reward]:
    """Turn specs into reward functions.

    Args:
        specs: One per function; the order is that of the score columns.

    Returns:
        The functions, with unique names.

    Raises:
        UserError: A spec cannot be resolved, or two functions share a name.
    """
    if not specs:
        raise UserError(f"no reward function is given; {_what_exists()}")
    rewards = [_resolve_one(spec, index) for index, spec in enumerate(specs)]
    names = [reward.name for reward in rewards]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"reward function '{name}' is given {names.count(name)} times and its scores could not be told apart; "
                f"give each a name of its own: {{function: {name}, name: other_name}}"
            )
    return rewards


def _resolve_one(spec: RewardSpec, index: int) -> Reward:
    given: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"function": spec}
    target = given.pop("function", None)
    weight = given.pop("weight", 1.0)
    chosen_name = given.pop("name", None)
    if isinstance(target, str):
        function, name = _find(target), re.split("[.:]", target)[-1]
    elif callable(target):
        function, name = target, _name_of(target, index)
    else:
        raise UserError(
            f"reward {index}: {spec!r} is neither a name nor a function nor {{function: name, weight: 1.0, ...}}; "
            f"{_what_exists()}"
        )
    name = chosen_name or name
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise UserError(f"reward function '{name}': weight must be a number, not {weight!r}")
    ready = _bind_settings(function, given, name)
    _refuse_async(ready, name)
    bound = frozenset[str]() if inspect.isclass(function) else frozenset(given)
    return _inspect(ready, name, float(weight), bound)


def _find(path: str) -> Callable[..., Any]:
    if path in BUILTINS:
        return BUILTINS[path]
    if "." not in path:
        raise UserError(f"there is no reward function '{path}'{did_you_mean(path, BUILTINS)}; {_what_exists()}")
    return load_function(path)


def _what_exists() -> str:
    return f"built in: {', '.join(BUILTINS)}; your own: 'file.function' for a function in a file of this folder"


def _name_of(function: Callable[..., Any], index: int) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    for name, builtin in BUILTINS.items():
        if function is builtin or type(function) is builtin:
            return name
    name = getattr(function, "__name__", type(function).__name__)
    return f"reward_{index}" if name == "<lambda>" else name


def _bind_settings(function: Callable[..., Any], settings: dict[str, Any], name: str) -> Callable[..., Any]:
    """Settings of a class go to its constructor; those of a function are bound as keyword arguments."""
    is_class = inspect.isclass(function)
    parameters = _parameters(function, name)
    known = [key for key in _named(parameters) if is_class or key not in OFFERED]
    for setting in settings:
        if setting not in known:
            listing = f"its settings: {', '.join(known)}" if known else "it has no settings"
            raise UserError(
                f"reward function '{name}' has no setting '{setting}'{did_you_mean(setting, [*known, *SPEC_KEYS])}; "
                f"{listing}"
            )
    if not is_class:
        return functools.partial(function, **settings) if settings else function
    for key in known:
        if parameters[key].default is inspect.Parameter.empty and key not in settings:
            raise UserError(
                f"reward function '{name}' needs the setting '{key}': "
                f"{{function: {name}, {key}: ...}}; its settings: {', '.join(known)}"
            )
    try:
        instance: Callable[..., Any] = function(**settings)
    except UserError:
        raise
    except Exception as error:
        given = ", ".join(f"{key}: {value!r}" for key, value in settings.items())
        raise UserError(
            f"reward function '{name}' cannot be set up with {{{given}}}: {describe_error(error)}"
        ) from error
    if not callable(instance):
        raise UserError(f"reward function '{name}' is a class whose objects cannot be called; give it __call__")
    return instance


def _refuse_async(function: Callable[..., Any], name: str) -> None:
    inner = function.func if isinstance(function, functools.partial) else function
    for candidate in (inner, getattr(inner, "__call__", None)):  # noqa: B004 - the method itself is what is asked for
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise UserError(
                f"reward function '{name}' is async, which is not supported; make it an ordinary function "
                f"(inside it, asyncio.run(...) may gather what it awaits)"
            )


def _inspect(function: Callable[..., Any], name: str, weight: float, bound: frozenset[str]) -> Reward:
    parameters = _parameters(function, name)
    named = [key for key in _named(parameters) if key not in bound]
    empty = inspect.Parameter.empty
    inner = function.func if isinstance(function, functools.partial) else function
    code = getattr(inspect.unwrap(inner), "__code__", getattr(type(inner).__call__, "__code__", None))
    return Reward(
        name=name,
        function=function,
        weight=weight,
        required=tuple(key for key in named if parameters[key].default is empty),
        optional=frozenset(key for key in named if parameters[key].default is not empty),
        takes_all=any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()),
        bound=bound,
        file=code.co_filename if code is not None else "",
    )


def _parameters(function: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise UserError(f"reward function '{name}' has no readable signature: wrap it in a def") from error


def _named(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [key for key, parameter in parameters.items() if parameter.kind not in variadic]
