"""What every algorithm shares: the backbone, the optimiser, one denominator per window, checkpoints and metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.strategies import DeepSpeedStrategy
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lit_rlhf.algorithms.known_bad import warn_of_swallowed_updates
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.ranks import world_size
from lit_rlhf.algorithms.resumed_optimizer import ConfiguredOptimizer
from lit_rlhf.algorithms.settings import as_factory, as_settings, save_plain_hyperparameters
from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.backbone.heads import Head
from lit_rlhf.builtin import load_sentinels
from lit_rlhf_callbacks.errors import UserError

ReferenceChoice: TypeAlias = Literal["auto", "copy", "adapter_off", "precomputed", "none"]
IN_PROGRESS_BAR = ("loss", "reward", "eval/pass_at_1", "completions/mean_length", "tokens_per_second")


def adamw(lr: float) -> dict[str, Any]:
    """Return AdamW without weight decay as a setting, the way a YAML would write it."""
    return {"class_path": "torch.optim.AdamW", "init_args": {"lr": lr, "weight_decay": 0.0}}


@dataclass(eq=False, repr=False, kw_only=True)
class Algorithm(LightningModule):
    """A training algorithm over one policy and, where it needs one, a frozen reference.

    Subclasses are dataclasses: their fields are their settings, with each algorithm's own defaults.
    """

    model: str = "builtin:tiny"
    """The start policy: ``builtin:<name>``, a hub id, a local folder, or a run directory (its ``model/``)."""

    lora: LoRA | None = None
    """Train low-rank adapters instead of all weights."""

    reference: ReferenceChoice = "auto"
    """The frozen yardstick: a ``copy`` of the start policy, the policy with its adapters off (``adapter_off``), its
    log-probs of the data from disk (``precomputed``, offline only), or ``none``; ``auto`` takes ``adapter_off`` with
    LoRA, else ``copy``, where the settings need a reference."""

    dropout: bool = False
    """Keep the model's dropout. Off, ratio = 1 and KL = 0 hold at step 0."""

    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward; None means on a GPU only."""

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(1e-6))  # type: ignore[assignment]
    """What steps on the trainable parameters."""

    lr_scheduler: LRSchedulerCallable | None = None
    """Changes the learning rate after every update; None keeps it constant."""

    head: ClassVar[Head] = "none"

    def __post_init__(self) -> None:
        super().__init__()
        save_plain_hyperparameters(self)
        self.lora = as_settings(LoRA, self.lora) if self.lora is not None else None
        if self.reference == "none" and self.needs_reference():
            raise UserError(
                f"model.reference: {type(self).__name__} with these settings is measured against a reference, so it "
                "cannot be none; use auto"
            )
        self.backbone = Backbone(
            self.model,
            lora=self.lora,
            reference=self._reference_kind(),
            dropout=self.dropout,
            gradient_checkpointing=self.gradient_checkpointing,
            head=self.head,
        )
        self.meter = WindowMeter()
        self.seconds: dict[str, float] = {}

    # -- what a subclass says of itself ---------------------------------------------------------------------------

    def needs_reference(self) -> bool:
        """Tell whether these settings use reference log-probs."""
        return False

    def step0_values(self) -> dict[str, float]:
        """Return metrics whose value before the first update is known, for whoever checks them."""
        return {}

    def score_temperature(self) -> float:
        """Return what logits are divided by when tokens are scored: that of the distribution they came from."""
        return 1.0

    # -- Lightning hooks ------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Refuse what would train wrongly without an error."""
        if stage != "fit":
            return
        accumulate = self.trainer.accumulate_grad_batches
        if any(
            isinstance(callback, GradientAccumulationScheduler)
            for callback in self.trainer.callbacks  # type: ignore[attr-defined]
        ):
            raise UserError(
                "trainer.callbacks: GradientAccumulationScheduler changes how a window is cut during the run; "
                "set trainer.accumulate_grad_batches instead"
            )
        if isinstance(self.trainer.strategy, DeepSpeedStrategy) and accumulate > 1:
            raise UserError(
                "trainer.strategy: DeepSpeed with accumulate_grad_batches > 1 divides gradients in a way nobody has "
                "measured here; set trainer.accumulate_grad_batches: 1 or use the strategy ddp or fsdp2"
            )
        interval = self.trainer.val_check_interval
        if isinstance(interval, int) and interval % accumulate:
            raise UserError(
                f"trainer.val_check_interval counts micro-batches: {interval} is no multiple of "
                f"trainer.accumulate_grad_batches ({accumulate}); set it to updates × {accumulate}"
            )
        if isinstance(interval, float) and interval < 1 and accumulate > 1:
            raise UserError(
                f"trainer.val_check_interval: {interval:g} of an epoch may end within an update; set it to a number of "
                f"micro-batches, updates × {accumulate}"
            )

    def configure_model(self) -> None:
        """Load the weights, once, and shard them where the strategy asks for it."""
        self.backbone.load()
        if self.device_mesh is not None:
            self.backbone.shard(self.device_mesh)

    def configure_callbacks(self) -> list[Callback]:
        """Let the settings of the optimiser be the config's on a resume, from Python as from the command line."""
        return [ConfiguredOptimizer()]

    def configure_optimizers(self) -> Any:
        """Hand the trainable parameters, and nothing frozen, to the optimiser."""
        optimizer = as_factory(self.optimizer)([p for p in self.parameters() if p.requires_grad])
        if self.lr_scheduler is None:
            return optimizer
        scheduler = as_factory(self.lr_scheduler)(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_fit_start(self) -> None:
        """Warn of weights too coarse for the learning rate."""
        warn_of_swallowed_updates(self.trainer)

    def on_train_start(self) -> None:
        """Evaluate once before the first update, so that every curve starts where the model started."""
        if self.global_step == 0 and self.trainer.enable_validation:
            self.trainer.validating = True
            self.trainer.fit_loop.epoch_loop.val_loop.run()
            self.trainer.training = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Record which start policy this run is measured against; its weights are not saved."""
        checkpoint["start_policy"] = self.backbone.checkpoint_facts()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on against another start policy than the run began with."""
        if "start_policy" in checkpoint:
            self.backbone.check_checkpoint_facts(checkpoint["start_policy"])

    # -- for subclasses -------------------------------------------------------------------------------------------

    def scaled(self, window_share: Tensor) -> Tensor:
        """Undo the divisions by accumulation (Lightning) and by ranks (DDP, FSDP2).

        Args:
            window_share: This micro-batch's sum over its rows, divided by the whole window's count.

        Returns:
            The loss to return from ``training_step``: a scalar that is no readable number.
        """
        return window_share * self.trainer.accumulate_grad_batches * world_size()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add a block's wall-clock seconds to the open window's metrics, where the slowest rank's will stand."""
        start = perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

    def close_window(self) -> dict[str, float]:
        """Reduce the window's metrics over ranks, log them and return them."""
        for name, seconds in self.seconds.items():
            self.meter.add_max(name, seconds)
        self.seconds = {}
        return self.publish(self.meter.compute())

    def publish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log already reduced values and return them."""
        for name, value in metrics.items():
            self.log(name, value, prog_bar=name in IN_PROGRESS_BAR, batch_size=1, rank_zero_only=False)
        return metrics

    # -- what a run shows of itself (callbacks/README.md) ---------------------------------------------------------

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        return {
            "algorithm": type(self).__name__,
            "model": self.model,
            "start_hash": self.backbone.start_hash,
            "reference": self.backbone.reference_kind,
            "stop_ids": list(self.backbone.eos_ids),
            "bos_id": self.tokenizer.bos_token_id,
            "vocab_size": self.backbone.config.get_text_config().vocab_size,
            "step0": self.step0_values(),
        }

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The policy's tokenizer."""
        return self.backbone.tokenizer

    def sentinel_sets(self) -> dict[str, list[dict[str, Any]]]:
        """Return multiple-choice items that the start policy can answer: of the embedded model its own."""
        return load_sentinels() if self.backbone.base_name == "builtin:tiny" else {}

    def save_model(self, folder: str | Path) -> None:
        """Write the current policy as an ordinary Hugging Face folder."""
        self.backbone.save_model(folder)

    def score(self, tokens: dict[str, Tensor]) -> Tensor:
        """Return the current policy's log-probs of a batch's tokens, ``[B, T]``, aligned to the token scored."""
        mask = tokens["completion_mask"]
        with torch.no_grad():
            scores = self.backbone.score_tokens(
                tokens["input_ids"], tokens["attention_mask"], mask, temperature=self.score_temperature()
            )
        return scores.logps

    def score_reference(self, tokens: dict[str, Tensor]) -> Tensor:
        """Return the reference's log-probs of a batch's tokens, as `score` does of the policy; where there is one."""
        mask = tokens["completion_mask"]
        scores = self.backbone.score_tokens(
            tokens["input_ids"],
            tokens["attention_mask"],
            mask,
            temperature=self.score_temperature(),
            reference=True,
        )
        return scores.logps

    def _reference_kind(self) -> Literal["none", "copy", "adapter_off"]:
        if self.reference == "precomputed":
            return "none"
        if self.reference != "auto":
            return self.reference
        if not self.needs_reference():
            return "none"
        return "adapter_off" if self.lora is not None else "copy"
