"""Where rows come from: an embedded task, reasoning-gym, a file, or anything the `datasets` library opens."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from lit_rlhf.builtin.tasks import load_task
from lit_rlhf.data.builtin_rows import Kind, as_kind
from lit_rlhf.data.files import SUFFIXES, Numbered, read_file
from lit_rlhf_callbacks.errors import UserError

Row = dict[str, Any]
Split = Literal["train", "eval"]
TASKS = ("builtin:", "reasoning_gym:")
DEFAULT_TASK_ROWS = 4_000  # of tens of thousands: more than a short run sees, and tokenised in a second


def load_rows(source: str, split: Split, options: dict[str, Any]) -> list[Row]:
    """Read every row of a prompt source.

    Args:
        source: ``builtin:<task>``, ``reasoning_gym:<dataset>``, a ``.jsonl``, ``.json``, ``.csv`` or ``.parquet``
            file, a folder saved by `datasets`, or a dataset id.
        split: Which part; files hold one part only and give the same rows for either.
        options: Settings of an embedded or reasoning-gym task; reasoning-gym gives ``size`` rows, 4,000 unless told.

    Returns:
        Rows with a ``prompt`` and any further columns.

    Raises:
        UserError: If the source does not exist or a row has no prompt.
    """
    kind, _, name = source.partition(":")
    if kind == "builtin":
        try:
            return load_task(name, split, **options)
        except ValueError as error:
            raise UserError(str(error)) from error
    if kind == "reasoning_gym":
        from lit_rlhf.rewards.reasoning_gym_task import load_reasoning_gym

        return load_reasoning_gym(name, split, **{"size": DEFAULT_TASK_ROWS, "seed": 0, **options})
    if options:
        raise UserError(f"data.options: '{source}' takes no options, got {sorted(options)}; remove them")
    rows = list(_read_jsonl(Path(source))) if source.endswith(".jsonl") else _read_dataset(source, split)
    for number, row in enumerate(rows, start=1):
        if not row.get("prompt"):
            raise UserError(f"{source}, row {number}: column 'prompt' is missing or empty; has: {', '.join(row)}")
    return rows


def numbered_rows(source: str, split: Split, kind: Kind, options: dict[str, Any]) -> Iterator[Numbered]:
    """Read every row of a source of offline data, the unusable ones too.

    Args:
        source: As in :func:`load_rows`; a task's rows get the columns of ``kind``.
        split: Which part; files hold one part only and give the same rows for either.
        kind: What a task is to be made into.
        options: Settings of an embedded or reasoning-gym task; the embedded ones give 4,000 rows unless told.

    Yields:
        Each row's number with the row, or with what is wrong with it.

    Raises:
        UserError: If the source does not exist or cannot be read.
    """
    if source.startswith(TASKS):
        rows = load_rows(source, split, options)
        if source.startswith("builtin:") and "num_rows" not in options:
            rows = rows[:DEFAULT_TASK_ROWS]
        yield from enumerate(as_kind(rows, kind, source, split))
    elif options:
        raise UserError(f"data.options: '{source}' takes no options, got {sorted(options)}; remove them")
    elif source.endswith(SUFFIXES):
        yield from read_file(Path(source))
    else:
        yield from enumerate(_read_dataset(source, split))


def _read_jsonl(path: Path) -> Iterator[Row]:
    if not path.is_file():
        raise UserError(f"data.prompts: there is no file '{path}'; give an existing file or 'builtin:reverse_words'")
    with path.open(encoding="utf-8", errors="strict") as file:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise UserError(f"{path}, row {number}: not a JSON object; write one object per line")
                    yield row
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, row {number}, column {error.colno}: not valid JSON ({error.msg})") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}, after row {number}: not valid UTF-8; save the file as UTF-8") from error


def _read_dataset(source: str, split: Split) -> list[Row]:
    import datasets

    path = Path(source)
    readers = {".json": "json", ".csv": "csv", ".parquet": "parquet"}
    try:
        if path.suffix in readers:
            table = datasets.load_dataset(readers[path.suffix], data_files=source, split="train")
        elif path.is_dir() and (path / "state.json").is_file():
            table = datasets.load_from_disk(source)
        else:
            table = datasets.load_dataset(source, split="train" if split == "train" else "test")
    except (FileNotFoundError, ValueError, ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"data: cannot open '{source}' ({reason}); give a file, a folder or an id") from error
    return [dict(row) for row in table]
