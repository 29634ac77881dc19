"""Offline algorithms: rows that exist before the run, in windows planned from their lengths alone."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from lit_rlhf.algorithms.base import Algorithm
from lit_rlhf.algorithms.forwards import Shown, dummy_share, join_shown, recomputed
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.showing import complete_prompts
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.offline import OfflineData
from lit_rlhf.data.preflight import announce, preflight, trained_stops
from lit_rlhf.data.samples import Example
from lit_rlhf.rollout import NativeSampler
from lit_rlhf.rollout.scored import Row
from lit_rlhf_callbacks.errors import UserError


@dataclass(eq=False, repr=False, kw_only=True)
class OfflineAlgorithm(Algorithm):
    """Training on given completions: what supervised, reward and preference learning share."""

    max_tokens_per_forward: int | None = None
    """Padded tokens one forward may hold; a larger micro-batch is computed in parts. Bounds memory, changes nothing
    else."""

    data_kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.eval_meter = WindowMeter()

    # -- what an algorithm defines --------------------------------------------------------------------------------

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return some examples' share of the window's loss, and what `measure` and callbacks read, detached.

        Args:
            tensors: What `collate` made of the examples, on the device.
            batch: Holds the window's counts, to divide by.
        """
        raise NotImplementedError

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add the metrics of what `window_share` showed, each name behind ``prefix``."""
        raise NotImplementedError

    # -- Lightning hooks ------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Tokenise the data, and tell its loader how a window is cut."""
        super().setup(stage)
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if not hasattr(data, "tokenise"):
            wanted = {"supervised": "SupervisedData", "stepwise": "StepwiseData"}.get(self.data_kind, "PreferenceData")
            raise UserError(
                f"data: {type(self).__name__} learns from lit_rlhf.{wanted} or a subclass of it, "
                f"got {type(data).__name__}; call fit(model, {wanted}(...))"
            )
        overfit = self.trainer.overfit_batches  # type: ignore[attr-defined]
        if overfit and (isinstance(overfit, float) or overfit % self.trainer.accumulate_grad_batches):
            raise UserError(
                f"trainer.overfit_batches is {overfit}; give a whole number of micro-batches: updates × "
                f"{self.trainer.accumulate_grad_batches}"
            )
        data.num_micro_batches = self.trainer.accumulate_grad_batches
        data.max_tokens = self.max_tokens_per_forward
        data.tokenise(self.backbone.tokenizer, kind=self.data_kind, context_length=self.backbone.context_length)
        if self.head == "none" and isinstance(data, OfflineData):
            self._stop_where_taught(data)
        if stage == "fit" and isinstance(data, OfflineData):  # not a user's own data of examples, which has no rows
            announce(preflight(data, self.backbone.eos_ids), data)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Return the loss of one micro-batch."""
        shares, shown = zip(*(self._part(part, batch, self.meter) for part in batch.parts), strict=True)
        share = torch.stack(shares).sum()
        self.meter.add_total("loss", share.detach())
        metrics = self.close_window() if batch.closes_window else {}
        return {"loss": self.scaled(share), "metrics": metrics, "tokens": join_shown(shown)}

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collect the held-out metrics of one batch."""
        for part in batch.parts:
            _, shown = self._share(part, batch)
            if shown:
                self.measure(self.eval_meter, shown, "eval/")

    def on_validation_epoch_end(self) -> None:
        """Log the held-out metrics, each over its own denominator."""
        self.publish(self.eval_meter.compute())

    def _stop_where_taught(self, data: OfflineData) -> None:
        """Let the policy's completions end where those it learns from do, after a borrowed template's turns too."""
        if new := self.backbone.add_stop_ids(trained_stops(data)):
            names = ", ".join(f"'{self.backbone.tokenizer.convert_ids_to_tokens(token)}'" for token in new)
            rank_zero_info(
                f"data: completions end with {names}; added to what ends generation, and to the saved model's"
            )

    def _part(self, part: list[Example], batch: Batch, meter: WindowMeter) -> tuple[Tensor, Shown]:
        def compute() -> tuple[Tensor, Shown]:
            return self._share(part, batch)

        share, shown = recomputed(compute) if len(batch.parts) > 1 else compute()
        if shown:
            self.measure(meter, shown, "")
        return share, shown

    def _share(self, part: list[Example], batch: Batch) -> tuple[Tensor, Shown]:
        if part:
            return self.window_share(self._on_device(part), batch)
        share = dummy_share(self.backbone)  # the forwards of `window_share`, in its order
        if self.needs_reference() and self.backbone.reference_kind != "none":
            dummy_share(self.backbone, reference=True)
        return share, {}

    def _on_device(self, examples: list[Example]) -> Shown:
        return {name: value.to(self.device) for name, value in collate(examples, self.backbone.pad_id).items()}

    # -- memory (callbacks/README.md) -----------------------------------------------------------------------------

    def set_token_budget(self, tokens: int) -> None:
        """Let no forward hold more padded tokens from now on; the same on all ranks."""
        self.max_tokens_per_forward = tokens
        self.trainer.datamodule.max_tokens = tokens  # type: ignore[attr-defined]
        if self.trainer.train_dataloader is not None:
            self.trainer.train_dataloader.max_tokens = tokens

    def largest_forward(self) -> tuple[int, Callable[[], Tensor]]:
        """Return the padded tokens of the first epoch's largest forward, and what computes its loss."""
        loader: Any = copy(self.trainer.train_dataloader)
        loader.cursor = 0
        parts = ((_padded_tokens(part, batch), part, batch) for batch in loader for part in batch.parts if part)
        tokens, part, batch = max(parts, key=lambda found: found[0])
        return tokens, lambda: self._share(part, batch)[0]

    # -- what a run shows of itself (callbacks/README.md) ---------------------------------------------------------

    def generate(self, prompts: list[Row], sampling: dict[str, Any], event: int) -> list[dict[str, Any]]:
        """Complete prompts for a panel, with noise of their own."""
        return complete_prompts(self.backbone, NativeSampler(self.backbone), None, prompts, sampling)

    def panel_prompts(self, num: int) -> list[Row]:
        """Return held-out prompts for a panel."""
        return list(self.trainer.datamodule.eval_rows[:num])  # type: ignore[attr-defined]


def _padded_tokens(part: list[Example], batch: Batch) -> int:
    lengths = [len(sample) for example in part for sample in example.samples]
    return sum(lengths) if batch.row_length is not None else len(lengths) * max(lengths)
