"""Rows that cannot be used: named with file, row and column, or skipped and counted; never trained on."""

from collections import Counter
from typing import Literal

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf_callbacks.errors import UserError

OnBadRow = Literal["raise", "skip"]
MOST_SKIPPED = 0.5  # beyond this share the file as a whole is taken to be wrong


class RowError(ValueError):
    """One row cannot be used.

    Args:
        problem: What is wrong, the same words for every row with this problem.
        advice: What to do.
        column: Where in the row; None where the row as a whole is meant.
    """

    def __init__(self, problem: str, advice: str, column: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.advice, self.column = problem, advice, column


class BadRows:
    """What to do with a source's bad rows, and how many there were.

    Args:
        source: How the user calls the data.
        on_bad_row: End with an error, or skip and count.
    """

    def __init__(self, source: str, on_bad_row: OnBadRow) -> None:
        self.source, self.on_bad_row = source, on_bad_row
        self.counts: Counter[str] = Counter()
        self.first: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, number: int, bad: RowError) -> None:
        """Meet a bad row.

        Args:
            number: Its number in the source, from 0.
            bad: What is wrong with it.

        Raises:
            UserError: If bad rows are not to be skipped.
        """
        if self.on_bad_row == "raise":
            what = f"column '{bad.column}'" if bad.column else "the row"
            raise UserError(
                f"{self.source}, row {number + 1}: {what} {bad.problem}; {bad.advice}, or set data.on_bad_row: skip"
            ) from bad
        what = f"column '{bad.column.partition('[')[0]}' {bad.problem}" if bad.column else bad.problem
        self.counts[what] += 1
        self.first.setdefault(what, number)

    def say(self, num_rows: int) -> None:
        """Say how many rows were skipped and why.

        Args:
            num_rows: Rows of the source, bad ones included.

        Raises:
            UserError: If so many are bad that the source itself must be wrong.
        """
        if not self.counts:
            return
        reasons = ", ".join(
            f"{count} × {what} (first: row {self.first[what] + 1})" for what, count in self.counts.most_common(5)
        )
        message = f"{self.source}: {len(self)} of {num_rows} rows cannot be used: {reasons}"
        if len(self) > MOST_SKIPPED * num_rows:
            raise UserError(f"{message}; that is too many to go on without them, so correct the data or data.columns")
        rank_zero_warn(f"{message}; skipped")
