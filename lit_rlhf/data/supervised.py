"""The DataModule of supervised fine-tuning."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.files import Row
from lit_rlhf.data.formats import Mask, Record, supervised_record
from lit_rlhf.data.offline import OfflineData


@dataclass(eq=False, repr=False, kw_only=True)
class SupervisedData(OfflineData):
    """Completions to imitate: rows of ``messages``, of ``prompt`` and ``completion``, or of ``text``."""

    mask: Mask = "auto"
    """Which tokens count. ``assistant_only``: the assistant's turns, each with the token that stops it.
    ``completion_only``: what follows the prompt; of ``messages``, the last turn. ``none``: every token. ``auto``: the
    assistant's turns of ``messages``, completions, and every token of ``text``."""

    kind: ClassVar[Kind] = "supervised"

    def read_row(self, row: Row) -> Record:
        """Read a row in any of the three forms."""
        return supervised_record(row, self.mask)

    def data_facts(self) -> dict[str, Any]:
        """Say which slice of the data a run used, and whether prompts are meant to be learned (None: where text)."""
        has_prompts = float((self.train_examples.columns["num_prompt"] > 1).mean()) > 0.5
        is_text = self.mask == "auto" and not has_prompts
        return {**super().data_facts(), "whole_rows_meant": None if is_text else self.mask == "none"}
