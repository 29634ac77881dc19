"""Supervised fine-tuning: the log-likelihood of given completions."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.offline import OfflineAlgorithm, Shown
from lit_rlhf.data.batches import Batch
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.functional.sft_losses import dft_loss, nll_loss


@dataclass(eq=False, repr=False, kw_only=True)
class SFT(OfflineAlgorithm):
    """Supervised fine-tuning on the supervised tokens of each row, averaged over the whole window's tokens."""

    loss: Literal["nll", "dft"] = "nll"
    """``nll``: negative log-likelihood. ``dft``: the same, each token weighted by its own probability, so that rare
    tokens do not dominate (arXiv 2508.05629)."""

    dropout: bool = True
    """Keep the model's dropout."""

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(2e-5))  # type: ignore[assignment]
    """What steps on the trainable parameters."""

    data_kind: ClassVar[Kind] = "supervised"

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of token losses over the window's supervised tokens."""
        mask = tensors["score_mask"]
        scores = self.backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask)
        values = nll_loss(scores.logps) if self.loss == "nll" else dft_loss(scores.logps)
        shown = {
            "input_ids": tensors["input_ids"],
            "attention_mask": tensors["attention_mask"],
            "completion_mask": mask,
            "logps": scores.logps.detach(),
            "entropy": scores.entropy.detach(),
        }
        return values[mask].sum() / batch.num_tokens, shown

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add negative log-likelihood, entropy and supervised tokens."""
        mask = shown["completion_mask"]
        meter.add_masked(f"{prefix}nll", -shown["logps"], mask)
        meter.add_masked(f"{prefix}entropy", shown["entropy"], mask)
        meter.add_total(f"{prefix}num_tokens", mask.sum())

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        return {**super().run_facts(), "stage": "sft", "loss": self.loss}
