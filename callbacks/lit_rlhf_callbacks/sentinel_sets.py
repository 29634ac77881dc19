"""Multiple-choice items: what they hold, and reading them from JSON lines of several shapes."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.protocol import offered

BUILTIN = "builtin:"
_LETTERED = re.compile(r"^([A-Z])[.):] ", re.MULTILINE)


class Item(NamedTuple):
    """A question with its options.

    Attributes:
        question: Text, used as it is, or chat messages, which go through the tokenizer's template.
        options: At least two different ones.
        answer: Place of the right one.
    """

    question: str | list[dict[str, str]]
    options: list[str]
    answer: int


def as_item(row: dict[str, Any], where: str) -> Item:
    r"""Make an item of a row.

    Args:
        row: ``question``; ``options`` (or ``choices``), a list of texts; ``answer``, the right option's index, letter
            or text. Without options the question has to list them itself, as lines ``A. …``, and its letters are the
            options.
        where: What to call the row in an error.

    Raises:
        UserError: A part is missing, or the answer is none of the options.

    Example:
        >>> as_item({"question": "2 + 2 =", "options": ["3", "4"], "answer": "B"}, "row 1").answer
        1
        >>> as_item({"question": "2 + 2 =\nA. 3\nB. 4\nAnswer:", "answer": "B"}, "row 1").options
        ['A', 'B']
    """
    question = row.get("question")
    if not question or (isinstance(question, str) and not question.strip()):
        raise UserError(f"{where}: has no question; a row has question, options and answer")
    options = row.get("options", row.get("choices"))
    if options is None:
        options = list(dict.fromkeys(_LETTERED.findall(question))) if isinstance(question, str) else []
    if not isinstance(options, list) or len({str(option) for option in options}) != len(options) or len(options) < 2:
        raise UserError(
            f"{where}: needs at least two different options, as a list or as lines 'A. …' of the question; "
            f"got {str(options)[:80]}"
        )
    options = [str(option) for option in options]
    return Item(question, options, _place(row.get("answer"), options, where))


def load_sets(wanted: Sequence[str] | None, pl_module: object) -> dict[str, list[Item]]:
    """Find the sets of a run.

    Args:
        wanted: Files of JSON lines, and ``builtin:<name>`` for sets of the module; None takes all the module has.
        pl_module: May have ``sentinel_sets()``.

    Returns:
        Items by the set's name, a file's without its ending; nothing where the module has none.

    Raises:
        UserError: A set does not exist or cannot be read, or two have the same name.
    """
    method = offered(pl_module, "sentinel_sets")
    own = {
        name: [as_item(row, f"{name}, item {number}") for number, row in enumerate(rows, 1)]
        for name, rows in (method() if method is not None else {}).items()
    }
    if wanted is None:
        return own
    sets: dict[str, list[Item]] = {}
    for source in wanted:
        name = source.removeprefix(BUILTIN) if source.startswith(BUILTIN) else Path(source).stem
        if name in sets:
            raise UserError(f"SentinelEval.sets: two sets are called {name}; rename one of the files")
        if source.startswith(BUILTIN) and name not in own:
            raise UserError(
                f"SentinelEval.sets: this module has no set {source}; "
                f"there are: {', '.join(BUILTIN + known for known in own) or 'none'}"
            )
        sets[name] = own[name] if source.startswith(BUILTIN) else read_items(source)
    return sets


def read_items(path: str) -> list[Item]:
    """Read a file of JSON lines.

    Raises:
        UserError: There is no such file, or a line is no item.
    """
    if not Path(path).is_file():
        raise UserError(f"SentinelEval.sets: no file {path}; give a file of JSON lines or builtin:<name>")
    with Path(path).open(encoding="utf-8", newline="\n") as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    return [as_item(_parsed(line, f"{path}, line {number}"), f"{path}, line {number}") for number, line in lines]


def spread(items: Iterable[Any], max_items: int) -> list[Any]:
    """Keep at most so many items, evenly spread over all of them and the same every time.

    Example:
        >>> spread(range(10), 4)
        [0, 2, 5, 7]
    """
    items = list(items)
    if len(items) <= max_items:
        return items
    return [items[place * len(items) // max_items] for place in range(max_items)]


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: is no JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: is no JSON object with question, options and answer")
    return row


def _place(answer: Any, options: list[str], where: str) -> int:
    if isinstance(answer, int) and 0 <= answer < len(options):
        return answer
    if isinstance(answer, str) and answer in options:
        return options.index(answer)
    if isinstance(answer, str) and len(answer) == 1 and 0 <= ord(answer) - ord("A") < len(options):
        return ord(answer) - ord("A")
    raise UserError(f"{where}: the answer {answer!r} is no index, letter or text of its {len(options)} options")
