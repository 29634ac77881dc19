"""The DataModule of every algorithm that generates: prompts to train on, and held-out ones to measure with."""

from dataclasses import dataclass, field
from typing import Any

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf.data.loader import EvalLoader, PhaseLoader, permutation
from lit_rlhf.data.seed import global_seed
from lit_rlhf.data.sources import Row, load_rows
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.shared_prompts import count_shared

EVAL_BATCH_SIZE = 256


@dataclass(eq=False, repr=False, kw_only=True)
class PromptData(LightningDataModule):
    """Prompts for online training, with a held-out part for evaluation during the run.

    A prompt's id is its row number in the set as read, before any filter; it stands in every file of the run.
    """

    prompts: str = "builtin:reverse_words"
    """Where prompts come from: ``builtin:<task>``, ``reasoning_gym:<dataset>``, a .jsonl/.json/.csv/.parquet file, a
    folder saved by `datasets`, or a dataset id. Rows have ``prompt`` (text, or messages) and any further columns,
    which reward functions receive."""

    eval_prompts: str | None = None
    """Held-out prompts; None takes a task's own held-out split, and from a file it holds out rows by the seed."""

    options: dict[str, Any] = field(default_factory=dict)
    """Settings of an embedded or reasoning-gym task, for example ``{max_length: 6}``."""

    prompts_per_phase: int = 16
    """How many prompts one rollout is made of, over all ranks."""

    num_eval: int = 256
    """How many held-out prompts are evaluated, one sample each."""

    limit: int | None = None
    """Train on this many prompts only, drawn by the seed."""

    def __post_init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.num_slots = 1  # set by the algorithm in its setup, which runs after ours
        self.train_rows: list[Row] = []
        self.eval_rows: list[Row] = []

    def setup(self, stage: str) -> None:
        """Read the prompts, number them, hold out the evaluation part and apply the limit."""
        self.seed = global_seed()
        rows = _numbered(load_rows(self.prompts, "train", self.options), self.prompts)
        if self.eval_prompts is not None:
            held_out = _numbered(load_rows(self.eval_prompts, "eval", {}), self.eval_prompts)
        elif self.prompts.startswith(("builtin:", "reasoning_gym:")):
            held_out = _numbered(load_rows(self.prompts, "eval", self.options), self.prompts)
        else:
            order = permutation(len(rows), "hold out", self.seed)
            num_held_out = min(self.num_eval, len(rows) // 10)
            held_out = [rows[index] for index in order[:num_held_out]]
            rows = [rows[index] for index in sorted(order[num_held_out:])]
        self.eval_rows = held_out[: self.num_eval]
        keep = permutation(len(rows), "limit", self.seed)[: self.limit] if self.limit is not None else range(len(rows))
        self.train_rows = [rows[index] for index in sorted(keep)]
        if not self.train_rows:
            raise UserError(f"data.prompts: '{self.prompts}' has no prompt to train on; check it and data.limit")

    def train_dataloader(self) -> PhaseLoader:
        """Return the prompts, each phase's repeated once per micro-batch."""
        rank, world_size = self._place()
        return PhaseLoader(self.train_rows, self.prompts_per_phase, self.num_slots, self.seed, rank, world_size)

    def val_dataloader(self) -> EvalLoader:
        """Return the held-out prompts."""
        return EvalLoader(self.eval_rows, EVAL_BATCH_SIZE, *self._place())

    def extra_prompts(self, exclude: set[int], num: int, phase: int, attempt: int) -> list[Row]:
        """Draw prompts to replace those whose group taught nothing, without replacement and without a cursor.

        Args:
            exclude: Prompt ids already used in this phase.
            num: How many are wanted, over all ranks.
            phase: The experience being collected.
            attempt: Which refill of this phase, from 1.

        Returns:
            At most ``num`` rows, the same on every rank.
        """
        order = permutation(len(self.train_rows), "refill", self.seed, phase, attempt)
        fresh = (self.train_rows[index] for index in order if self.train_rows[index]["prompt_id"] not in exclude)
        return [row for row, _ in zip(fresh, range(num), strict=False)]

    def data_facts(self) -> dict[str, Any]:
        """Say which slice of the data a run used, for its record."""
        parts = self.train_rows, self.eval_rows
        return {
            "prompts": self.prompts,
            "options": self.options,
            "num_train": len(self.train_rows),
            "num_eval": len(self.eval_rows),
            "num_eval_in_train": count_shared(*([repr(row["prompt"]) for row in rows] for rows in parts)),
            "limit": self.limit,
            "seed": self.seed,
        }

    def _place(self) -> tuple[int, int]:
        kwargs = self.trainer.distributed_sampler_kwargs if self.trainer is not None else None
        return (kwargs["rank"], kwargs["num_replicas"]) if kwargs else (0, 1)


def _numbered(rows: list[Row], source: str) -> list[Row]:
    if any("prompt_id" in row for row in rows):
        rank_zero_warn(f"data: row numbers replace the column prompt_id of '{source}'; rename it to keep its values")
    return [{**row, "prompt_id": number} for number, row in enumerate(rows)]
