"""The DataModule of process reward models."""

from dataclasses import dataclass
from typing import ClassVar

from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.files import Row
from lit_rlhf.data.formats import Record, stepwise_record
from lit_rlhf.data.offline import OfflineData


@dataclass(eq=False, repr=False, kw_only=True)
class StepwiseData(OfflineData):
    """Solutions with a label for each step: rows of ``prompt``, ``completions`` (the steps) and ``labels``."""

    step_separator: str = "\n"
    """Stands after each step; a step is judged at the last token of its separator."""

    kind: ClassVar[Kind] = "stepwise"

    def read_row(self, row: Row) -> Record:
        """Read a row."""
        return stepwise_record(row)

    def step_separator_or_none(self) -> str | None:
        """Return the separator."""
        return self.step_separator
