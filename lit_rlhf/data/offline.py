"""What the offline DataModules share: read rows when set up, tokenise them for an algorithm, plan windows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from transformers import PreTrainedTokenizerBase

from lit_rlhf.backbone.loading import load_tokenizer, source_chain
from lit_rlhf.data.bad_rows import OnBadRow
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.encode import NumberedRecord
from lit_rlhf.data.files import Row
from lit_rlhf.data.formats import Record
from lit_rlhf.data.mixture import (
    Loaded,
    Source,
    draw,
    hold_out,
    mix,
    names_and_weights,
    read_sources,
    source_of,
    warn_of_shared_prompts,
)
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Example
from lit_rlhf.data.seed import global_seed
from lit_rlhf.data.sources import TASKS
from lit_rlhf.data.table import ExampleTable
from lit_rlhf.data.tally import Tally
from lit_rlhf.data.tokenising import tokenise_part
from lit_rlhf.data.window_loader import WindowLoader
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.shared_prompts import count_shared

EVAL_EXAMPLES = 64  # per batch, over all ranks
EVAL_TOKENS = 16_384  # padded tokens per forward without gradients, unless a budget is set


@dataclass(eq=False, repr=False, kw_only=True)
class OfflineData(LightningDataModule):
    """Rows with completions, for training without generation. Use one of the subclasses."""

    train: str | list[str] | dict[str, float] = "builtin:reverse_words"
    """Where rows come from: ``builtin:<task>``, ``reasoning_gym:<dataset>``, a .jsonl/.jsonl.gz/.json/.csv/.parquet
    file, a folder saved by `datasets`, or a dataset id. A list puts sources together; a mapping of sources to weights
    draws from each its share, without repetition."""

    eval: str | list[str] | dict[str, float] | None = None
    """Held-out rows; None takes a task's own held-out split, and from anything else it holds out rows by the seed, all
    rows of a prompt together."""

    options: dict[str, Any] = field(default_factory=dict)
    """Settings of an embedded or reasoning-gym task, for example ``{num_rows: 10000}``."""

    columns: dict[str, str] = field(default_factory=dict)
    """Columns that are called otherwise in the data, for example ``{prompt: question, completion: answer}``."""

    limit: int | None = None
    """Train on this many rows only, drawn by the seed."""

    num_eval: int = 256
    """How many held-out rows are evaluated."""

    examples_per_update: int = 32
    """How many rows one optimiser step is made of, over all ranks."""

    max_length: int = 1024
    """Tokens a sequence may have. A longer one loses prompt tokens from the left; a completion that is too long by
    itself loses its end."""

    on_bad_row: OnBadRow = "raise"
    """What a row that cannot be used does: end the run with its place, or be skipped, counted and said."""

    chat_template_source: str | None = None
    """Take the chat template of this model; for a base model that has none of its own."""

    kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        # these four are set by the algorithm in its setup, which runs after ours
        self.num_micro_batches = 1
        self.max_tokens: int | None = None
        self.with_strangers = False  # KTO's reference point needs other rows' completions
        self.packing = False
        self.sources: list[Source] = []
        self.eval_sources: list[Source] = []
        self.loaded: dict[str, list[Loaded]] = {}
        self.renderer: Renderer
        self.tables: dict[str, ExampleTable] = {}
        self.tallies: dict[str, Tally] = {}

    # -- what a kind of data defines ------------------------------------------------------------------------------

    def read_row(self, row: Row) -> Record:
        """Turn a row into a record.

        Raises:
            RowError: If it cannot be used.
        """
        raise NotImplementedError

    def step_separator_or_none(self) -> str | None:
        """Return what stands after each step, for stepwise data."""
        return None

    # -- reading --------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Read the rows, hold out the evaluation part and apply weights and limit."""
        if self.loaded:
            return
        self.seed = global_seed()
        names, weights = names_and_weights(self.train)
        self.sources = self._read(names, "train")
        rows = [source.rows for source in self.sources]
        if self.eval is not None:
            eval_names, eval_weights = names_and_weights(self.eval)
            self.eval_sources = self._read(eval_names, "eval")
            held_out = mix([source.rows for source in self.eval_sources], eval_weights, "eval", self.seed)
        elif all(name.startswith(TASKS) for name in names):
            self.eval_sources = self._read(names, "eval")
            held_out = mix([source.rows for source in self.eval_sources], weights, "eval", self.seed)
        else:
            parts = [hold_out(part, self.num_eval, self.seed, place) for place, part in enumerate(rows)]
            rows, self.eval_sources = [part for part, _ in parts], self.sources
            held_out = mix([aside for _, aside in parts], weights, "eval", self.seed)
        train = draw(mix(rows, weights, "train", self.seed), self.limit, "limit", self.seed)
        if not train:
            raise UserError(f"data.train: {self.train} has no row to train on; check it, data.limit and the weights")
        self.loaded = {"train": train, "eval": draw(held_out, self.num_eval, "eval", self.seed)}
        if self.eval is not None:
            warn_of_shared_prompts(train, self.loaded["eval"])

    def where(self, number: int, part: str = "train") -> str:
        """Say where a row comes from.

        Args:
            number: `Example.row`.
            part: ``train`` or ``eval``.

        Returns:
            For example ``pairs.jsonl, row 17``, counted from 1.
        """
        source = source_of(number, self.sources if part == "train" else self.eval_sources)
        return f"{source.name}, row {number - source.first + 1}"

    @property
    def eval_rows(self) -> list[Row]:
        """The held-out rows that have a prompt, with it, its number and their further columns, as `PromptData`'s."""
        return [
            {**loaded.row, "prompt": loaded.record.prompt, "prompt_id": loaded.number}
            for loaded in self.loaded.get("eval", [])
            if loaded.record.prompt
        ]

    # -- tokenising -----------------------------------------------------------------------------------------------

    def tokenise(
        self, tokenizer: PreTrainedTokenizerBase, *, kind: Kind | None = None, context_length: int | None = None
    ) -> None:
        """Turn the rows into examples, once; an algorithm calls this in its setup.

        Args:
            tokenizer: The policy's. Its chat template is replaced where `chat_template_source` names another.
            kind: What the algorithm needs; None takes what the data is.
            context_length: Tokens the model can read, a bound on `max_length`.

        Raises:
            UserError: If the data is not of this kind, or too little is left to learn from.
        """
        if self.tables:
            return
        if self.chat_template_source is not None:
            tokenizer.chat_template = load_tokenizer(source_chain(self.chat_template_source)).get_chat_template()
        self.renderer = Renderer(tokenizer)
        max_length = min(self.max_length, context_length or self.max_length)
        for part, loaded in self.loaded.items():
            records = self.records_for([(row.number, row.record) for row in loaded], kind)
            self.tables[part], self.tallies[part] = tokenise_part(
                part,
                records,
                self.renderer,
                max_length=max_length,
                step_separator=self.step_separator_or_none(),
                sources=self.sources if part == "train" else self.eval_sources,
                on_bad_row=self.on_bad_row,
                strategy=self.trainer.strategy if self.trainer is not None else None,
            )
        tally = self.tallies["train"]
        rank_zero_info(
            f"data: {tally.num_examples} examples to train on, {self.tallies['eval'].num_examples} held out; "
            f"tokens per sequence: {tally.lengths}; of these supervised: {tally.supervised}"
        )

    def records_for(self, records: list[NumberedRecord], kind: Kind | None) -> list[NumberedRecord]:
        """Return records of the kind an algorithm needs.

        Raises:
            UserError: If these cannot be made into it.
        """
        if kind not in (None, self.kind):
            raise UserError(f"data: the algorithm needs {kind} data, and {self.train} is {self.kind}; give other data")
        return records

    @property
    def train_examples(self) -> ExampleTable:
        """What is trained on."""
        return self._table("train")

    @property
    def eval_examples(self) -> ExampleTable:
        """What is held out."""
        return self._table("eval")

    @property
    def fingerprint(self) -> str:
        """A hash of every token, mask and label of the training data."""
        return self.train_examples.fingerprint

    # -- loaders --------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> WindowLoader:
        """Return the windows of an epoch; with `overfit_batches` every epoch holds the same few rows."""
        examples: Sequence[Example] = self.train_examples
        overfit: int = self.trainer.overfit_batches if self.trainer is not None else 0  # type: ignore[attr-defined]
        if overfit:
            num_windows = overfit // self.num_micro_batches
            examples = examples[: num_windows * self.examples_per_update]
        return WindowLoader(
            examples,
            self.examples_per_update,
            self.num_micro_batches,
            self.max_tokens,
            self.seed,
            *self._place(),
            with_strangers=self.with_strangers,
            packing=self.packing,
        )

    def val_dataloader(self) -> WindowLoader:
        """Return the held-out examples, in order; every rank has the same number of batches."""
        budget = self.max_tokens or EVAL_TOKENS
        return WindowLoader(
            self.eval_examples,
            EVAL_EXAMPLES,
            1,
            budget,
            0,
            *self._place(),
            shuffle=False,
            with_strangers=self.with_strangers,
            packing=self.packing,
        )

    def data_facts(self) -> dict[str, Any]:
        """Say which slice of the data a run used, for its record."""
        return {
            "train": self.train,
            "eval": self.eval,
            "options": self.options,
            "num_train": len(self.train_examples),
            "num_eval": len(self.eval_examples),
            "num_eval_in_train": count_shared(self.train_examples.prompts(), self.eval_examples.prompts()),
            "limit": self.limit,
            "max_length": self.max_length,
            "seed": self.seed,
            "skipped": {source.name: dict(source.bad.counts) for source in self.sources if source.bad.counts},
            "dropped": self.tallies["train"].num_dropped,
            "fingerprint": self.fingerprint,
        }

    # -- inside ---------------------------------------------------------------------------------------------------

    def _read(self, names: Sequence[str], split: Any) -> list[Source]:
        return read_sources(
            names,
            split,
            kind=self.kind,
            read_row=self.read_row,
            options=self.options if split == "train" or self.eval is None else {},
            columns=self.columns,
            on_bad_row=self.on_bad_row,
        )

    def _table(self, part: str) -> ExampleTable:
        if part not in self.tables:
            raise UserError(
                f"data: {type(self).__name__} holds rows, not tokens yet: call data.setup('fit') and "
                "data.tokenise(tokenizer), as the offline algorithms of lit_rlhf do in their setup"
            )
        return self.tables[part]

    def _place(self) -> tuple[int, int]:
        kwargs = self.trainer.distributed_sampler_kwargs if self.trainer is not None else None
        return (kwargs["rank"], kwargs["num_replicas"]) if kwargs else (0, 1)
