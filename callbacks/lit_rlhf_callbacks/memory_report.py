"""Predicted memory against the measured peak, and what to turn first."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch import Tensor, nn

from lit_rlhf_callbacks.memory import activation_bytes
from lit_rlhf_callbacks.memory_facts import describe_training, find_micro_batch
from lit_rlhf_callbacks.memory_meter import Meter, static_tensors, tensor_bytes
from lit_rlhf_callbacks.memory_plan import (
    MicroBatch,
    Parts,
    Training,
    crowding,
    first_knob,
    micro_batch_parts,
    static_parts,
)
from lit_rlhf_callbacks.memory_table import as_size, table
from lit_rlhf_callbacks.published import Published

_EXAMPLE = MicroBatch(num_rows=1, length=1024, is_padded=False)


class MemoryReport(Callback):
    """Predict what a run holds, measure it, and print both after the first update and at the end.

    Weights, gradients and the optimiser's state are predicted from the weights at the start; activations and logits
    from the shape of the largest micro-batch so far (``input_ids`` of the batch, or of the ``tokens`` that
    ``training_step`` returns), for transformers with a Hugging Face configuration. Metrics: ``memory/predicted_gib``,
    ``memory/peak_gib``, ``memory/static_gib``, ``memory/activations_gib`` (measured just before a backward). A rollout
    is in the peak but not in the prediction. On CUDA it also says, at the start, when another process holds the device
    or free memory is below the prediction. Numbers are rank 0's.

    Example::

        Trainer(callbacks=[MemoryReport()])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self) -> None:
        self.predicted: Parts = {}
        self.measured: Parts = {}
        self._training: Training | None = None
        self._meter: Meter | None = None
        self._largest: MicroBatch | None = None
        self._largest_cost = 0
        self._held = 0
        self._at_start = 0
        self._step = 0
        self._published = Published()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Predict what is known by now, and look who else is on the device."""
        self._step = trainer.global_step
        self.predicted = static_parts(pl_module, trainer.optimizers, isinstance(trainer.strategy, DDPStrategy))
        self._training = describe_training(trainer, pl_module)
        self._meter = Meter(pl_module.device, tensor_bytes(static_tensors(pl_module, trainer.optimizers)))
        said = ", ".join(f"{name} {as_size(size)}" for name, size in self.predicted.items())
        if self._training is None:
            said += "; activations could not be predicted: there is no Hugging Face configuration to read widths from"
        else:
            per_row = micro_batch_parts(self._training, _EXAMPLE)
            said += "; and per row of 1,024 tokens " + ", ".join(f"{k} {as_size(v)}" for k, v in per_row.items())
        rank_zero_info(f"MemoryReport predicts: {said}")
        if pl_module.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(pl_module.device)
            own = torch.cuda.memory_reserved(pl_module.device)
            for warning in crowding(free, total, own, sum(self.predicted.values())):
                rank_zero_warn(f"MemoryReport: {warning}")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note what is in use before a forward."""
        assert self._meter is not None
        self._at_start = self._meter.now()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Note what the forward has kept."""
        assert self._meter is not None
        self._held = self._meter.now() - self._at_start

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Look while all gradients exist."""
        assert self._meter is not None
        self._meter.now()
        if "static" not in self.measured:
            self._with_gradients = static_tensors(pl_module, [])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Compare the largest micro-batch so far; publish after an update, print after the first."""
        micro_batch = find_micro_batch(outputs, batch)
        if micro_batch is not None and self._training is not None:
            self._take(pl_module, micro_batch)
        if trainer.global_step > self._step:
            is_first = "static" not in self.measured
            if is_first:
                states = static_tensors(nn.Module(), trainer.optimizers)
                self.measured["static"] = tensor_bytes([*self._with_gradients, *states])
                del self._with_gradients
            self._step = trainer.global_step
            self._publish(trainer, pl_module, outputs)
            if is_first:
                self._print(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print how it was."""
        if "static" in self.measured:
            self._print(trainer)

    def _take(self, pl_module: LightningModule, batch: MicroBatch) -> None:
        """Predict a micro-batch, unless a larger one has been seen; one computed in parts holds one part at a time."""
        assert self._training is not None
        budget = getattr(pl_module, "max_tokens_per_forward", None)
        in_parts = budget is not None and batch.num_rows * batch.length > budget
        if in_parts:
            batch = batch._replace(num_rows=max(1, budget // batch.length))  # type: ignore[operator]
        cost = activation_bytes(self._training.shape, batch.num_rows, batch.length, self._training.precision)
        if cost < self._largest_cost:
            return
        if cost > self._largest_cost:
            self.measured.pop("activations", None)
        self._largest, self._largest_cost = batch, cost
        self.predicted |= micro_batch_parts(self._training, batch)
        if not in_parts:  # of parts nothing is kept: the backward runs each again
            self.measured["activations"] = max(self._held, self.measured.get("activations", 0))

    def _publish(self, trainer: Trainer, pl_module: LightningModule, outputs: Any) -> None:
        assert self._meter is not None
        self.measured["peak"] = max(self._meter.peak(), self.measured["static"])  # pages may have been there before
        values = {"predicted": sum(self.predicted.values()), **self.measured}
        metrics = {f"memory/{name}_gib": size / 2**30 for name, size in values.items()}
        self._published.add(trainer, pl_module, outputs, metrics)

    def _print(self, trainer: Trainer) -> None:
        if not trainer.is_global_zero:
            return
        assert self._meter is not None
        how = "allocated" if self._meter.is_exact else "resident memory of the process, libraries included"
        text = table(self.predicted, self.measured, how, f"memory, update {trainer.global_step}")
        if self._largest is not None:
            rows, length, _ = self._largest
            text += f"Largest micro-batch: {rows} × {length} tokens. "
        text += f"To need less: {first_knob(self.predicted, bool(self._training and self._training.checkpointing))}.\n"
        if trainer.progress_bar_callback is not None:
            trainer.progress_bar_callback.print(text)
        else:
            print(text)
