"""Short, one-line descriptions of errors, places and prompts for the messages of reward functions."""

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

MAX_IDS = 8
MAX_CHARS = 200


def shorten(text: str) -> str:
    r"""Put a text on one line of at most 200 characters.

    Args:
        text: Any text.

    Returns:
        The text with its white space as single blanks, cut where it is too long.

    >>> shorten("two\nlines")
    'two lines'
    """
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARS else line[:MAX_CHARS] + "…"


def describe_error(error: BaseException) -> str:
    r"""Say what an exception says, on one line.

    Args:
        error: Any exception.

    Returns:
        Type and message, cut to 200 characters.

    >>> describe_error(ValueError("two\nlines"))
    'ValueError: two lines'
    >>> describe_error(KeyError())
    'KeyError'
    """
    text = shorten(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_place(file: str, line: int) -> str:
    """Give file and line, relative to the current folder when the file lies in it.

    Args:
        file: Path of a source file.
        line: Line number, from 1.

    Returns:
        ``file:line``.
    """
    path, here = Path(file), Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}:{line}"


def place_in_traceback(traceback: TracebackType | None, is_users: Callable[[str], bool]) -> str:
    """Find the innermost line of the user's own code in a traceback.

    Args:
        traceback: The traceback of an exception.
        is_users: Whether the lines of a source file mean something to the user.

    Returns:
        `` at file:line``, or "" when the traceback passes through no such file.
    """
    place = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_users(file):
            place = f" at {describe_place(file, traceback.tb_lineno)}"
        traceback = traceback.tb_next
    return place


def describe_ids(prompt_ids: Iterable[int]) -> str:
    """Name prompts by id, each once, the first eight of many.

    Args:
        prompt_ids: One id per row; the rows of a group repeat it.

    Returns:
        For example ``prompt id 7`` or ``prompt ids 1, 2, 3``.

    >>> describe_ids([7, 7]), describe_ids([1, 2])
    ('prompt id 7', 'prompt ids 1, 2')
    >>> describe_ids(range(20))
    'prompt ids 0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)'
    """
    unique = list(dict.fromkeys(prompt_ids))
    shown = ", ".join(str(prompt_id) for prompt_id in unique[:MAX_IDS])
    if len(unique) > MAX_IDS:
        shown += f", … ({len(unique)} in all)"
    return f"prompt id{'' if len(unique) == 1 else 's'} {shown}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known names closest to a mistyped one.

    Args:
        name: What the user wrote.
        known: What exists.

    Returns:
        ``; did you mean 'a' or 'b'?``, or "" when nothing is close.

    >>> did_you_mean("exact_mach", ["exact_match", "format"])
    "; did you mean 'exact_match'?"
    """
    matches = difflib.get_close_matches(name, list(known), n=2)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
