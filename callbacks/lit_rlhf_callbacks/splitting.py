"""Whether a batch may be computed in parts: what parts weigh, and whether their gradient is the batch's."""

import copy
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.oom import unless_out_of_memory
from lit_rlhf_callbacks.parts import Parts, WeightFn, count_labels, cut_rows, loss_of
from lit_rlhf_callbacks.undisturbed import logging_into, remember

SHARDED = (DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy)


class Splitting:
    """Cuts batches, and knows when not to.

    Args:
        trainer: the trainer.
        pl_module: the module.
        parts: its step over parts.
        weight_fn: from a batch to what its mean loss is divided by; None counts supervised labels.
    """

    def __init__(self, trainer: Trainer, pl_module: LightningModule, parts: Parts, weight_fn: WeightFn | None) -> None:
        self.trainer, self.pl_module, self.parts, self.weight_fn = trainer, pl_module, parts, weight_fn
        self._adds_up: bool | None = None

    def weight(self, part: Any) -> float:
        """Return what a part's mean loss is divided by."""
        return float(self.weight_fn(part) if self.weight_fn is not None else count_labels(part) or 0)

    def why_not(self, batch: Any, *rest: Any) -> str | None:
        """Tell why a batch cannot be computed in parts, or None.

        Args:
            batch: the batch.
            rest: the other arguments of ``training_step``.
        """
        if isinstance(self.trainer.strategy, SHARDED):
            return f"under {type(self.trainer.strategy).__name__} no rank can compute in parts alone"
        rows = cut_rows(batch)
        if rows is None:
            return "it is no dict of tensors with one batch dimension, so it cannot be cut"
        if self.weight_fn is None and count_labels(batch) is None:
            return "without labels [B, T] nothing says what a part weighs, and equal weights are wrong: give weight_fn"
        if any(isinstance(module, _BatchNorm) and module.training for module in self.pl_module.modules()):
            return "batch normalisation sees other batches in parts"
        if self._adds_up is None:
            self._adds_up = self._rows_add_up(rows, rest)
        if not self._adds_up:
            return "the loss of two rows is not the weighted mean of their losses, so parts are wrong: give weight_fn"
        return None

    def _rows_add_up(self, rows: list[Any], rest: tuple[Any, ...]) -> bool:
        """Compare two rows, of the weights furthest apart among the first sixteen, computed together and alone."""
        weighed = [(self.weight(row), place) for place, row in enumerate(rows[:16])]
        weighed = sorted(pair for pair in weighed if pair[0] > 0)
        if len(weighed) < 2:
            return True
        pair = [rows[place] for _, place in (weighed[0], weighed[-1])]
        if self.weight_fn is None:  # rows of like length may have like counts, which would hide a difference
            pair[0]["labels"] = _few_labels(pair[0]["labels"])
        both = copy.copy(pair[0])
        for name, value in pair[0].items():
            if isinstance(value, Tensor) and value.ndim:
                both[name] = torch.cat([row[name] for row in pair])
            elif isinstance(value, list):
                both[name] = [entry for row in pair for entry in row[name]]
        batches = [*pair, both]
        losses, fits = unless_out_of_memory(lambda: [self._quiet_loss(batch, rest) for batch in batches])
        if losses is None or not fits:  # so scarce that two rows are too many
            return True
        low, high = (self.weight(row) for row in pair)
        expected = (low * losses[0] + high * losses[1]) / (low + high)
        tolerance = 1e-4 if str(self.trainer.precision).startswith("32") else 2e-2
        return abs(losses[2] - expected) <= tolerance * max(1.0, abs(losses[2]))

    def _quiet_loss(self, batch: Any, rest: tuple[Any, ...]) -> float:
        put_back = remember(self.pl_module)
        try:
            with observing(self.trainer, self.pl_module), logging_into(self.pl_module, None):
                return float(loss_of(self.parts.step(batch, *rest)))
        finally:
            put_back()


def _few_labels(labels: Tensor) -> Tensor:
    """Keep the first quarter of a row's labels, ``[1, T]``, and at least one that predicts something."""
    kept = labels.clone()
    supervised = (labels[0, 1:] != -100).nonzero().flatten() + 1
    kept[0, supervised[len(supervised) // 4 + 1 :]] = -100
    return kept
