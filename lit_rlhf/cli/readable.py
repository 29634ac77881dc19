"""From jsonargparse's account of everything it tried to the one line that says what the user got wrong.

jsonargparse tries every type that a setting may have and lists why each failed. The line that matters is the
innermost one of the branch that got furthest: ``Option 'group_sise' is not accepted`` below ``model`` and ``GRPO``.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from lit_rlhf.cli.known_names import class_names, group_setting_names, setting_names
from lit_rlhf.cli.spelling import meant

_KEY = re.compile(r"Parser key ['\"](?P<name>[^'\"]+)['\"]:")
_OWNER = re.compile(r"Problem with given class_path ['\"](?P<name>[^'\"]*)['\"]:")
_FACTORY = re.compile(r"Type typing\.Callable.* expects a function or a callable class: ")
_GIVEN = re.compile(r"Given value: (?:NestedArg\(key='[^']+', val='(?P<nested>[^']*)'\)|(?P<value>.*))")
_REQUIRED = re.compile(r"the following arguments are required: (?P<names>.+)")
# What a line may say, most telling first.
_UNKNOWN = re.compile(
    r"Option '(?P<option>[^']+)' is not accepted"
    r"|Group '(?P<group>[^']+)' does not accept option '(?P<nested>[^']+)'"
    r"|Subcommand '[^']+' does not accept option '(?P<key>[^']+)'"
    r"|[Uu]nrecognized arguments: --(?P<flag>[^\s=]+)"
)
_CLASS = re.compile(r"Expected a dot import path string: (?P<value>\S+)")
_VALUE = re.compile(
    r"Expected an? (?!dot import|path but|<class 'NoneType'>)(?P<type>.+?)(?:\. Got value: (?P<value>.*))?$"
)
_NEWS = re.compile(
    r"(?!Expected a|Not a valid subclass|Subtypes:|Errors:|Does not validate|Given value|Parser key|Problem with)\S"
)
Line = tuple[int, str]


class Problem(NamedTuple):
    """The innermost line of a message, and what it is about."""

    match: re.Match[str]
    keys: list[str]
    """Leads to the setting: ``["model", "init_args", "sampling"]``."""
    owner: str | None
    """The class whose settings are meant."""
    below: list[str]
    """The lines from this one on, as far as they belong to the same setting."""

    @property
    def key(self) -> str:
        """The setting's name with its way there."""
        return ".".join(self.keys)


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
    if required := _REQUIRED.search(message):
        names = [name.partition(".")[2] or name for name in required["names"].split(", ")]
        return f"{' and '.join(names)}: not given; use a config, such as --config grpo, or --{names[0]}"
    lines = _lines(message)
    if problem := _innermost(lines, _UNKNOWN):
        return _unknown_setting(problem, known_keys)
    problem = _innermost(lines, _CLASS)
    if problem is not None and (names := class_names(problem.key.rpartition(".")[2])):
        name = problem.match["value"]
        return f"{problem.key}: no class {name}{_suggestion(name, names)}"
    if problem := _innermost(lines, _VALUE):
        return _bad_value(problem)
    problem = _innermost(lines, _NEWS)
    if problem is not None and problem.keys:
        return f"{problem.key.removesuffix('.init_args')}: {problem.match.string}"
    return " ".join(message.split())


def _lines(message: str) -> list[Line]:
    """Split a message into (depth, text), deeper lines being about a part of what the lines above are about."""
    lines = []
    for line in message.splitlines():
        text = line.lstrip(" -")
        depth = len(line) - len(text)
        if factory := _FACTORY.match(text):  # such as an optimiser: the reason stands in the same line
            lines.append((depth, "Problem with given class_path '':"))
            depth, text = depth + 1, text[factory.end() :]
        if text:
            lines.append((depth, text))
    return lines


def _innermost(lines: list[Line], pattern: re.Pattern[str]) -> Problem | None:
    """Find the deepest line that matches, and walk from it out to the lines it stands under."""
    found = [number for number, (_, text) in enumerate(lines) if pattern.match(text)]
    if not found:
        return None
    number = max(found, key=lambda number: lines[number][0])
    depth, text = lines[number]
    keys: list[str] = []
    owner = None
    for outer_depth, outer in reversed(lines[:number]):
        if outer_depth >= depth:
            continue
        depth = outer_depth
        if key := _KEY.match(outer):
            keys.insert(0, key["name"])
        elif found_owner := _OWNER.match(outer):
            keys.insert(0, "init_args")
            owner = owner if owner is not None else found_owner["name"]
    match = pattern.match(text)
    assert match is not None
    return Problem(match, keys, owner, [text for _, text in lines[number:]])


def _unknown_setting(problem: Problem, known_keys: Iterable[str]) -> str:
    match, keys, owner, _ = problem
    if owner is None:
        key = match["key"] or match["flag"] or match["option"]
        return f"{key}: no such setting{_suggestion(key, known_keys)}"
    if given := re.search(r"class_path='([^']+)'", match.string):
        owner = given[1]
    if match["group"]:
        path, names, whose = [*keys, match["group"], match["nested"]], group_setting_names(owner, match["group"]), ""
    else:
        path, names, whose = [*keys, match["option"]], setting_names(owner), f" of {owner.rpartition('.')[2]}"
    return f"{'.'.join(path)}: no such setting{whose}{_suggestion(path[-1], names)}"


def _bad_value(problem: Problem) -> str:
    """Name all types the setting may have: a union lists them one below the other."""
    types, value = [], problem.match["value"]
    for text in problem.below:
        if given := _GIVEN.match(text):
            value = value or given["nested"] or given["value"].partition(". Got value:")[0]
            break
        if expected := _VALUE.match(text):
            types.append(re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", expected["type"]))
    wanted = " or ".join(types).replace("typing.Literal", "one of ")
    return f"{problem.key}: expected {wanted}, got {value}"


def _suggestion(name: str, known: Iterable[str]) -> str:
    suggestion = meant(name, known)
    return f"; {suggestion}" if suggestion else ""
