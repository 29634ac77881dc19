"""``metrics.csv``: one row per update, readable after a crash, rewritten only when a new column appears."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from lit_rlhf_callbacks.append_only import append_line, move_lines, replace_text
from lit_rlhf_callbacks.metric_table import in_table_order
from lit_rlhf_callbacks.open_row import STEP, Row


class MetricsFile:
    """A table of numbers keyed by ``global_step``, in ascending order.

    Args:
        path: The file; it is made by the first row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = self._read_header()
        self._last_step: int | None = None

    def go_on_from(self, step: int) -> Row:
        """Move rows beyond update ``step`` to ``metrics.csv.discarded``.

        Returns:
            The row of that update, or an empty one; it stays in the file until `put` replaces it.
        """
        if not self.names:
            return {}
        place = self.names.index(STEP)
        move_lines(self.path, lambda line: int(next(csv.reader([line]))[place]) <= step, num_header_lines=1)
        rows = self._read_rows()
        if not rows:
            return {}
        self._last_step = int(rows[-1][STEP])
        last = {name: float(cell) for name, cell in rows[-1].items() if cell}
        return last | {STEP: self._last_step} if self._last_step == step else {}

    def declare(self, names: Iterable[str]) -> None:
        """Say which columns will be needed; it is free as long as nothing is written."""
        if not self.path.exists():
            self.names = in_table_order({STEP, "hours", *self.names, *names})

    def put(self, row: Row) -> None:
        """Add a row, or replace the last one if it is of the same update."""
        self.declare(row)
        is_last = self._last_step == row[STEP]
        if is_last or not set(row) <= set(self.names):
            self._rewrite(row, drop_last=is_last)
        else:
            if not self.path.exists():
                append_line(self.path, _line(self.names, self._header))
            append_line(self.path, _line(self.names, _cells(row)))
        self._last_step = int(row[STEP])

    def _rewrite(self, row: Row, drop_last: bool) -> None:
        rows = self._read_rows()
        if drop_last:
            rows.pop()
        self.names = in_table_order({*self.names, *row})
        lines = [_line(self.names, cells) for cells in [self._header, *rows, _cells(row)]]
        replace_text(self.path, "\n".join(lines) + "\n")

    @property
    def _header(self) -> dict[str, str]:
        return {name: name for name in self.names}

    def _read_header(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])

    def _read_rows(self) -> list[dict[str, str]]:
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def _cells(row: Row) -> dict[str, str]:
    return {name: repr(value) for name, value in row.items()}


def _line(names: list[str], cells: dict[str, str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([cells.get(name, "") for name in names])
    return buffer.getvalue()
