"""Files that only grow, one line per record, and stay readable after a crash; a resume moves lines aside."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class JsonLines:
    """One JSON object per line.

    Args:
        path: The file; it is made by the first record.
        step_key: The field that says after which update a record was made.
    """

    def __init__(self, path: Path, step_key: str = "step") -> None:
        self.path = path
        self.step_key = step_key

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is in the file when this returns."""
        append_line(self.path, json.dumps(record, ensure_ascii=False))

    def discard_after(self, step: int) -> None:
        """Move records made after update ``step`` to ``<file>.discarded``."""
        move_lines(self.path, lambda line: json.loads(line)[self.step_key] <= step)


def append_line(path: Path, line: str) -> None:
    """Add one line in a single write, so that a crash leaves it whole or not at all."""
    data = (line + "\n").encode("utf-8", "backslashreplace")  # a lone surrogate becomes a valid JSON escape
    with path.open("ab", buffering=0) as file:
        file.write(data)


def move_lines(path: Path, is_kept: Callable[[str], bool], num_header_lines: int = 0) -> None:
    """Move lines to ``<file>.discarded``: those not kept, and what a crash left of a last line.

    Args:
        path: The file; it may be missing.
        is_kept: Whether a line, without its line break, stays.
        num_header_lines: Lines at the top that stay, and that are repeated above what is moved.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="\n") as file:  # not splitlines: text holds other kinds of line break
        lines = file.readlines()
    header, records = lines[:num_header_lines], lines[num_header_lines:]
    kept = [line for line in records if line.endswith("\n") and is_kept(line[:-1])]
    moved = [line for line in records if not (line.endswith("\n") and is_kept(line[:-1]))]
    if not moved:
        return
    with Path(f"{path}.discarded").open("a", encoding="utf-8") as file:
        file.write("".join([*header, *moved]).rstrip("\n") + "\n")
    replace_text(path, "".join([*header, *kept]))


def replace_text(path: Path, text: str) -> None:
    """Give a file a new content in one step: a reader or a crash sees the old one or the new one."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
