"""The DataModule of preference learning and of reward models."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.encode import NumberedRecord
from lit_rlhf.data.files import Row
from lit_rlhf.data.formats import (
    PreferenceKind,
    Record,
    paired_record,
    preference_kind,
    ranked_record,
    unpaired_record,
)
from lit_rlhf.data.offline import OfflineData

_READERS = {"paired": paired_record, "ranked": ranked_record, "unpaired": unpaired_record}


@dataclass(eq=False, repr=False, kw_only=True)
class PreferenceData(OfflineData):
    """Completions that are better or worse: pairs, rankings, or single ones with a label.

    Pairs are rows of ``chosen`` and ``rejected``, with a ``prompt`` or with what both begin with as the prompt, and
    perhaps a ``margin``. Rankings are rows of ``prompt`` and ``completions``, best first or with ``scores``. Single
    ones are rows of ``prompt``, ``completion`` and ``label``.
    """

    form: Literal["auto", "paired", "ranked", "unpaired"] = "auto"
    """Which of the three the rows are; ``auto`` reads it from the columns, and takes pairs of a built-in task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.found: PreferenceKind | None = None if self.form == "auto" else self.form

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """What the rows are."""
        return self.found or "paired"

    def read_row(self, row: Row) -> Record:
        """Read a row; the first one that can be read decides what all must be."""
        if self.found is None:
            found = preference_kind(row)
            if found is None:
                raise RowError(
                    "has none of the columns chosen and rejected, completions, or completion and label",
                    f"it has {', '.join(map(str, row)) or 'none'}: rename them, or map them with data.columns",
                )
            record = _READERS[found](row)
            self.found = found
            return record
        return _READERS[self.found](row)

    def records_for(self, records: list[NumberedRecord], kind: Kind | None) -> list[NumberedRecord]:
        """Return records of the kind an algorithm needs: a pair is also a ranking of two, and two labelled ones."""
        if kind == "unpaired" and self.kind == "paired":
            return [
                (row, replace(record, completions=[completion], label=label))
                for row, record in records
                for completion, label in zip(record.completions, (1.0, 0.0), strict=True)
            ]
        return records if (kind, self.kind) == ("ranked", "paired") else super().records_for(records, kind)

    def data_facts(self) -> dict[str, Any]:
        """Say which slice of the data a run used, and what it is."""
        return {**super().data_facts(), "kind": self.kind}
