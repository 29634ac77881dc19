"""Measuring held-out rows one by one, within a run: before training and after it."""

from time import perf_counter
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from lit_rlhf.algorithms.offline import OfflineAlgorithm
from lit_rlhf.data.batches import Batch, collate

Columns = dict[str, Tensor]
PER_SAMPLE = ("rewards", "logits")
PER_EXAMPLE = ("chosen_rewards", "rejected_rewards", "label")


class HeldOut(Callback):
    """Collect numbers per held-out row, after training and, if asked, before."""

    def __init__(self, *, before: bool) -> None:
        self.wants_before = before
        self.before: Columns = {}
        self.after: Columns = {}

    def on_train_start(self, trainer: Trainer, pl_module: OfflineAlgorithm) -> None:  # type: ignore[override]
        """Measure the start policy."""
        if self.wants_before:
            self.before = measure_rows(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: OfflineAlgorithm) -> None:  # type: ignore[override]
        """Measure what came of it."""
        self.after = measure_rows(trainer, pl_module)


class Progress(Callback):
    """Print every update's metrics in one line."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self.start = perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print what closed a window."""
        metrics = outputs["metrics"]
        wanted = ("loss", "nll", "reward_loss", "accuracy", "preference_loss", "rewards/accuracies", "rewards/margins")
        if batch.closes_window:
            shown = ", ".join(f"{name} {metrics[name]:.4f}" for name in wanted if name in metrics)
            print(f"update {trainer.global_step} ({(perf_counter() - self.start) / 60:.1f} min): {shown}", flush=True)


@torch.no_grad()
def measure_rows(trainer: Trainer, module: OfflineAlgorithm) -> Columns:
    """Return per held-out row: where it stands in the file, and whatever its algorithm shows.

    Args:
        trainer: Knows the data.
        module: Scores.

    Returns:
        ``row`` ``[N]`` and columns ``[N]``, or ``[N, 2]`` for what there is of chosen and rejected.
    """
    module.eval()
    start = perf_counter()
    examples = sorted(trainer.datamodule.eval_examples, key=lambda example: example.length)  # type: ignore[attr-defined]
    found: dict[str, list[Tensor]] = {}
    for first in range(0, len(examples), 8):
        part = examples[first : first + 8]  # of nearly the same length: hardly a pad
        tensors = {k: v.to(module.device) for k, v in collate(part, module.backbone.pad_id).items()}
        batch = Batch(parts=[part], num_examples=len(part), num_tokens=1, closes_window=True)
        with trainer.precision_plugin.forward_context():
            _, shown = module.window_share(tensors, batch)
        columns = {"row": tensors["row"], "num_tokens": tensors["score_mask"].sum(-1)}
        for name in ("logps", "ref_logps", "is_top"):
            if name in shown:
                columns[name] = (shown[name].double() * shown["completion_mask"]).sum(-1)
        columns |= {name: shown[name] for name in (*PER_SAMPLE, *PER_EXAMPLE) if name in shown}
        for name, values in columns.items():
            found.setdefault(name, []).append(values.reshape(len(part), -1).squeeze(-1).double().cpu())
    module.train()
    print(f"held-out rows measured in {perf_counter() - start:.0f} s", flush=True)
    return {name: torch.cat(values) for name, values in found.items()}
