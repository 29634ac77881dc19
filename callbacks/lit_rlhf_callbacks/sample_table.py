"""How samples look: a table for the console, and one for the logger."""

import io
import shutil
import sys
from collections.abc import Sequence
from typing import Any

Sample = dict[str, Any]
CONSOLE_CHARACTERS = 600
LOGGER_CHARACTERS = 4000


def visible(text: str, max_characters: int) -> str:
    r"""Make text safe and readable in a table: control characters are escaped, the middle of long text is left out.

    Example:
        >>> visible("one\ntwo\x1b[31m" + "x" * 100, max_characters=20)
        'one⏎\ntwo\\x1b[3 […] xxxxxxxxxx'
    """
    if len(text) > max_characters:
        half = max_characters // 2
        text = f"{text[:half]} […] {text[-half:]}"
    escaped = (c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped).replace("\n", "⏎\n")


def console_table(samples: Sequence[Sample], title: str) -> str:
    """Render samples for a terminal, special tokens as they are."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = _reward_names(samples)
    table = Table(title=title, show_lines=True)
    for heading in ("prompt", "completion", "tokens", "finish", *names):
        table.add_column(heading, overflow="fold")
    for sample in samples:
        texts = (visible(sample[key], CONSOLE_CHARACTERS) for key in ("prompt", "completion"))
        rewards = (_number(sample["rewards"].get(name)) for name in names)
        cells = (*texts, str(sample["num_tokens"]), sample["finish"], *rewards)
        table.add_row(*(Text(cell) for cell in cells))  # Text: square brackets are no markup here
    width = shutil.get_terminal_size((120, 24)).columns
    console = Console(file=io.StringIO(), width=width, force_terminal=sys.stdout.isatty(), legacy_windows=False)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def logger_table(samples: Sequence[Sample]) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows for a logger's ``log_table``."""
    names = _reward_names(samples)
    keys = ["step", "event", "prompt_id", "prompt", "completion", "num_tokens", "finish"]
    rows = []
    for sample in samples:
        cells = [sample[key] for key in keys]
        cells = [visible(cell, LOGGER_CHARACTERS) if isinstance(cell, str) else cell for cell in cells]
        rows.append(cells + [sample["rewards"].get(name) for name in names])
    return [*keys, *names], rows


def _reward_names(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(name for sample in samples for name in sample["rewards"]))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
