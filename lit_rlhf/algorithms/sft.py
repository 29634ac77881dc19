"""Supervised fine-tuning: the log-likelihood of given completions."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch import Tensor

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.offline import OfflineAlgorithm, Shown
from lit_rlhf.algorithms.ranks import world_size
from lit_rlhf.algorithms.stopping import count_stops
from lit_rlhf.data.batches import Batch
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.offline import OfflineData
from lit_rlhf.data.packing import first_fit, pack_rows
from lit_rlhf.functional.logprobs import TokenScores
from lit_rlhf.functional.sft_losses import dft_loss, nll_loss
from lit_rlhf.rollout import NativeSampler
from lit_rlhf_callbacks.errors import UserError


@dataclass(eq=False, repr=False, kw_only=True)
class SFT(OfflineAlgorithm):
    """Supervised fine-tuning on the supervised tokens of each row, averaged over the whole window's tokens."""

    loss: Literal["nll", "dft"] = "nll"
    """``nll``: negative log-likelihood. ``dft``: the same, each token weighted by its own probability, so that rare
    tokens do not dominate (arXiv 2508.05629)."""

    packing: bool = False
    """Let sequences share rows, so that forwards compute tokens instead of pads: the same updates, faster where lengths
    vary. A row is as long as the window's longest sequence, and its sequences do not see each other."""

    num_stop_prompts: int = 64
    """How many held-out prompts the policy completes at every evaluation, always by the most probable token, to see
    whether it stops by itself (``eval/stop_rate``); 0 completes none."""

    stop_max_new_tokens: int = 128
    """Tokens such a completion may have; raise it where right answers are longer."""

    dropout: bool = True
    """Keep the model's dropout."""

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(2e-5))  # type: ignore[assignment]
    """What steps on the trainable parameters."""

    data_kind: ClassVar[Kind] = "supervised"

    def setup(self, stage: str) -> None:
        """Tell the data's loader whether sequences share rows, and say what that saves."""
        super().setup(stage)
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        data.packing = self.packing
        try:
            NativeSampler(self.backbone)
        except UserError as reason:
            rank_zero_warn(f"eval/stop_rate is left out. {reason}")
            self.num_stop_prompts = 0
        if self.packing and stage == "fit" and isinstance(data, OfflineData):
            loader = data.train_dataloader()
            before, after = (f"{loader.padding(packing):.0%}" for packing in (False, True))
            rank_zero_info(f"data: {after} of the tokens in a forward are pads; {before} without packing")

    def configure_model(self) -> None:
        """Load the weights, and refuse a model in which sequences of a row would see each other."""
        self.backbone.load()
        if self.packing and not self.backbone.is_sharded and not self.backbone.keeps_documents_apart():
            raise UserError(
                f"model.packing: in '{self.model}' ({self.backbone.config.model_type}) sequences that share a row see "
                "each other; set packing: false"
            )
        super().configure_model()

    def on_validation_epoch_end(self) -> None:
        """Add how many of the policy's own completions end, and log the held-out metrics."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if self.num_stop_prompts and isinstance(data, OfflineData):
            place = (self.global_rank, world_size())
            stops = count_stops(
                NativeSampler(self.backbone),
                data.eval_examples,
                self.num_stop_prompts,
                self.stop_max_new_tokens,
                place,
            )
            self.eval_meter.add_mean("eval/stop_rate", *stops)
        super().on_validation_epoch_end()

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of token losses over the window's supervised tokens."""
        mask = tensors["score_mask"]
        scores = self._scores(tensors, batch.row_length)
        values = nll_loss(scores.logps) if self.loss == "nll" else dft_loss(scores.logps)
        shown = {
            "input_ids": tensors["input_ids"],
            "attention_mask": tensors["attention_mask"],
            "completion_mask": mask,
            "logps": scores.logps.detach(),
            "entropy": scores.entropy.detach(),
            "is_top": scores.is_top,
        }
        return values[mask].sum() / batch.num_tokens, shown

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add negative log-likelihood, entropy, accuracy and supervised tokens."""
        mask = shown["completion_mask"]
        meter.add_masked(f"{prefix}nll", -shown["logps"], mask)
        meter.add_masked(f"{prefix}entropy", shown["entropy"], mask)
        meter.add_masked(f"{prefix}mean_token_accuracy", shown["is_top"], mask)
        meter.add_total(f"{prefix}num_tokens", mask.sum())

    def _scores(self, tensors: Shown, row_length: int | None) -> TokenScores:
        """Score each row's tokens, ``[S, T]``, also where the forward holds several of them in one."""
        rows = (tensors["input_ids"], tensors["attention_mask"], tensors["score_mask"])
        if not self.packing:
            return self.backbone.score_tokens(*rows)
        lengths = rows[1].sum(-1).tolist()
        # The loader's own rows again: first fit of some of its rows gives these rows.
        shared = first_fit(lengths, row_length or max(lengths))
        packed = pack_rows(*rows, shared, self.backbone.pad_id)
        scores = self.backbone.score_tokens(
            packed.input_ids, packed.attention_mask, packed.score_mask, position_ids=packed.position_ids
        )
        return TokenScores(*(packed.unpack(values) for values in scores))

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        return {**super().run_facts(), "stage": "sft", "loss": self.loss}
