"""Reading rows from files: what is wrong with one row is said of that row, and the rows around it survive."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf_callbacks.errors import UserError

Row = dict[str, Any]
Numbered = tuple[int, Row | RowError]

MAX_ROW_BYTES = 4_000_000
NUMBER_COLUMNS = ("label", "margin")
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")

_TOO_LONG = f"is longer than {MAX_ROW_BYTES // 1_000_000} MB"


def read_file(path: Path) -> Iterator[Numbered]:
    """Read a file row by row.

    Args:
        path: Ends in one of :data:`SUFFIXES`. In a ``.jsonl`` a row's number is its line's, from 0.

    Yields:
        Each row's number with the row, or with what is wrong with it.

    Raises:
        UserError: If the file as a whole cannot be read.
    """
    if not path.is_file():
        raise UserError(f"data: there is no file '{path}'; give an existing file, a dataset id or a built-in task")
    name = path.name
    try:
        if name.endswith(".parquet"):
            yield from _read_parquet(path)
        elif name.endswith(".csv"):
            yield from _read_csv(path)
        elif name.endswith(".gz"):
            with gzip.open(path, "rb") as file:
                yield from _read_lines(file)  # type: ignore[arg-type]
        else:
            with path.open("rb") as file:
                yield from _read_array(file) if name.endswith(".json") and _starts_array(file) else _read_lines(file)
    except (OSError, EOFError) as error:  # gzip ends early with an EOFError
        reason = (str(error).splitlines() or ["it ends early"])[0]
        raise UserError(f"{path}: cannot be read ({reason}); check the file") from error


def parse_json(data: bytes) -> Any:
    """Parse one JSON text.

    Raises:
        RowError: If it is too long, no UTF-8, no JSON, or names a key twice.
    """
    if len(data) > MAX_ROW_BYTES:
        raise RowError(_TOO_LONG, "split or remove it")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise RowError("is not valid UTF-8", f"save it as UTF-8 (byte {error.start + 1} of the row)") from error
    except json.JSONDecodeError as error:
        raise RowError("is not valid JSON", f"look at column {error.colno} ({error.msg})") from error
    except (RecursionError, ValueError) as error:  # nested beyond reason, or a number of thousands of digits
        if isinstance(error, RowError):
            raise
        raise RowError("is not valid JSON", "write one plain object") from error


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise RowError("stands twice in the row", "keep one of the two", column=twice)
    return row


def _as_row(value: Any) -> Row:
    if not isinstance(value, dict):
        raise RowError("is not a JSON object", "write one object per row")
    return value


def _read_lines(file: BinaryIO) -> Iterator[Numbered]:
    number = 0
    while line := file.readline(MAX_ROW_BYTES + 2):
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors write it
        if len(line) > MAX_ROW_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(MAX_ROW_BYTES)) and not rest.endswith(b"\n"):
                pass
        if line.strip():
            try:
                yield number, _as_row(parse_json(line.rstrip(b"\r\n")))
            except RowError as bad:
                yield number, bad
        number += 1


def _starts_array(file: BinaryIO) -> bool:
    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    return start.startswith(b"[")


def _read_array(file: BinaryIO) -> Iterator[Numbered]:
    name = getattr(file, "name", "the file")
    try:
        rows = json.loads(file.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not valid UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"{name}, line {error.lineno}, column {error.colno}: not valid JSON ({error.msg}); correct it there"
        ) from error
    except (RecursionError, ValueError) as error:
        raise UserError(f"{name}: not valid JSON; write an array of plain objects") from error
    for number, row in enumerate(rows):
        try:
            yield number, _as_row(row)
        except RowError as bad:
            yield number, bad


def _read_csv(path: Path) -> Iterator[Numbered]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        csv.field_size_limit(MAX_ROW_BYTES)
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None)
            if not header:
                return
            if len(set(header)) != len(header):
                raise UserError(f"{path}: the header names a column twice; rename one: {', '.join(header)}")
            for number, cells in enumerate(row for row in reader if row):
                if len(cells) != len(header):
                    yield number, RowError("has another number of cells than the header", "quote commas and newlines")
                else:
                    yield number, {name: _cell(name, text) for name, text in zip(header, cells, strict=True)}
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: not valid CSV ({error}); correct it there") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}, after line {reader.line_num}: not valid UTF-8; save it as UTF-8") from error


def _cell(column: str, text: str) -> Any:
    """Give a cell the type it must have: CSV knows text only."""
    if not text:
        return None
    if text[0] in "[{" or column in NUMBER_COLUMNS:
        try:
            return json.loads(text.lower() if text.lower() in ("true", "false") else text)
        except (ValueError, RecursionError):
            return text
    return text


def _read_parquet(path: Path) -> Iterator[Numbered]:
    from pyarrow import ArrowException  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    yield number, row
                    number += 1
    except (ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}, after row {number}: not valid parquet ({reason}); write the file again") from error
