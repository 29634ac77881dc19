"""Batches of rows of like length, the heaviest one tried first, and memory running out survived."""

import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn

from lit_rlhf_callbacks.bucket_loader import BucketLoader, LengthFn, bucketed, reason_to_decline
from lit_rlhf_callbacks.buckets import padding_waste
from lit_rlhf_callbacks.dry_run import dry_run
from lit_rlhf_callbacks.oom import MemoryLimit
from lit_rlhf_callbacks.oom_guard import OomGuard
from lit_rlhf_callbacks.oom_stop import rewind_window
from lit_rlhf_callbacks.own_budget import try_budget
from lit_rlhf_callbacks.parts import WeightFn, shape_of
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.published import Published
from lit_rlhf_callbacks.undisturbed import replace

_NO_LIMIT = float("inf")


class LengthBucketing(Callback):
    """Train on batches of rows of like length, so that little is padding, and get through out-of-memory errors.

    The training ``DataLoader`` keeps its dataset and ``collate_fn``; its batches become rows of like length, in an
    order that depends on the seed and the epoch alone, the same number on every rank. Before the first update the
    heaviest batch goes once through forward and backward, without a trace. A batch that runs out of memory is computed
    in parts with the gradient of the whole; the limit learned stays in the checkpoint. Metrics: ``padding/waste``,
    ``padding/waste_before``, ``padding/tokens_per_second``, ``padding/num_split``.

    A loader with an order or batches of its own is left alone, with one line saying why. With dropout, parts draw other
    noise than the whole batch would. ``training_step`` is called once per part, and again in the backward; with several
    ranks it must not wait for another rank itself (logging with ``sync_dist`` is fine).

    Args:
        max_tokens: Padded tokens (rows × longest row) a batch may hold. None keeps the number of batches per epoch.
        length_fn: From a row of the dataset to its tokens; None takes ``len(row["input_ids"])``.
        weight_fn: From a batch to what its mean loss is divided by, such as its supervised tokens; None counts the
            ``labels`` that are not -100, without the first column. Without labels, parts would have another gradient,
            and the run stops instead.

    Example::

        Trainer(callbacks=[LengthBucketing(max_tokens=8192)])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(
        self, max_tokens: int | None = None, length_fn: LengthFn | None = None, weight_fn: WeightFn | None = None
    ) -> None:
        self.max_tokens, self.length_fn, self.weight_fn = max_tokens, length_fn, weight_fn
        self.limit = MemoryLimit()
        self._guard: OomGuard | None = None
        self._has_replaced = False
        self._undo: list[Callable[[], None]] = []
        self._counts = [0, 0, 0]  # real tokens, padded ones, batches in parts: of the open window
        self._step, self._time = 0, 0.0
        self._published = Published()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Stand where Lightning hands a strategy its loaders: after sharing rows among ranks, whoever made them."""
        if stage != "fit":
            return
        set_budget = offered(pl_module, "set_token_budget", "tokens")
        if set_budget is not None:
            if self.max_tokens is not None:
                set_budget(tokens=self.max_tokens)
            return  # it splits by itself
        process = trainer.strategy.process_dataloader

        def process_dataloader(dataloader: Any) -> Any:
            return process(self._replace(dataloader, trainer) if trainer.training else dataloader)

        self._undo.append(replace(trainer.strategy, "process_dataloader", process_dataloader))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Watch over the step, and try the heaviest batch."""
        self._step, self._time = trainer.global_step, time.monotonic()
        loader = trainer.train_dataloader
        set_budget = offered(pl_module, "set_token_budget", "tokens")
        largest_forward = offered(pl_module, "largest_forward")
        if set_budget is not None and self.limit.max_tokens is not None:  # learned before a resume
            set_budget(tokens=min(self.limit.max_tokens, self.max_tokens or self.limit.max_tokens))
        if set_budget is not None and largest_forward is not None:
            learned = try_budget(trainer, pl_module, set_budget, largest_forward)
            self.limit.max_tokens = learned if learned is not None else self.limit.max_tokens
        if not isinstance(loader, BucketLoader):
            if self._has_replaced:
                rank_zero_warn("LengthBucketing: several loaders; no dry run, and no help when memory runs out.")
            return
        self._say_what_changed(loader)
        if not pl_module.automatic_optimization:
            rank_zero_warn("LengthBucketing: manual optimisation; no dry run, and no help when memory runs out.")
            return
        self._guard = OomGuard(trainer, pl_module, self.limit, self.weight_fn)
        self._undo.append(self._guard.remove)
        batch = dry_run(trainer, pl_module, self._guard, loader.heaviest_batch())
        shape, longest = shape_of(batch), max(loader.plan.lengths)
        if shape is not None and shape[1] > 2 * longest:
            rank_zero_warn(
                f"LengthBucketing: the longest row has {longest} tokens, but collate_fn pads to {shape[1]}; let it pad "
                "to the longest row of the batch, or bucketing saves nothing."
            )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Tell the guard which micro-batch this is."""
        if self._guard is not None:
            self._guard.batch_idx = batch_idx

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count tokens; after an update, publish."""
        loader = trainer.train_dataloader
        if isinstance(loader, BucketLoader):
            shape = shape_of(batch)
            real = loader.current_tokens()
            self._count(real, shape[0] * shape[1] if shape is not None else real)
        elif isinstance(outputs, dict) and "attention_mask" in outputs.get("tokens", {}):
            mask = outputs["tokens"]["attention_mask"]
            self._count(int(mask.sum()), mask.numel())
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._publish(trainer, pl_module, outputs)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Where the run stops within an update, let it go on with the update's first micro-batch."""
        if self._guard is not None and self._guard.is_stopping:
            rewind_window(checkpoint, self._guard.num_done)

    def state_dict(self) -> dict[str, Any]:
        """Return the learned limit."""
        return self.limit.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the learned limit back."""
        self.limit.max_tokens = state_dict["max_tokens"]

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the module and the strategy as they were."""
        self._clean_up()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module and the strategy as they were."""
        self._clean_up()

    def _replace(self, loader: Any, trainer: Trainer) -> Any:
        reason = reason_to_decline(loader, trainer, self.length_fn)
        if reason is not None:
            rank_zero_warn(f"LengthBucketing leaves the batches as they are: {reason}.")
            return loader
        self._has_replaced = True
        return bucketed(loader, trainer, self.max_tokens, self.length_fn)

    def _say_what_changed(self, loader: BucketLoader) -> None:
        lengths, batches = loader.plan.lengths, loader.plan.everybodys
        rank_zero_info(
            f"LengthBucketing: {len(lengths)} rows of {min(lengths)} to {max(lengths)} tokens in {len(batches)} "
            f"batches (before: {loader.num_batches_before}); padding {padding_waste(lengths, batches):.1%} "
            f"(before: {loader.waste_before:.1%})."
        )

    def _count(self, real: int, padded: int) -> None:
        is_split = self._guard is not None and self._guard.step is not None and self._guard.step.num_parts > 1
        self._counts = [n + more for n, more in zip(self._counts, (real, padded, int(is_split)), strict=True)]

    def _publish(self, trainer: Trainer, pl_module: LightningModule, outputs: Any) -> None:
        """Sum over the window and the ranks, and take the lowest limit of all: rank 0's is what a checkpoint keeps."""
        limit = self.limit.max_tokens or _NO_LIMIT
        mine = torch.tensor([*self._counts, limit], dtype=torch.double, device=pl_module.device)
        everybodys = trainer.strategy.all_gather(mine).view(-1, len(mine))
        real, padded, num_split = everybodys[:, :3].sum(0).tolist()
        lowest = float(everybodys[:, 3].min())
        self.limit.max_tokens = None if lowest == _NO_LIMIT else int(lowest)
        self._counts = [0, 0, 0]
        now = time.monotonic()
        seconds, self._time = now - self._time, now
        if not padded:
            return
        metrics = {"padding/waste": 1 - real / padded, "padding/tokens_per_second": real / seconds}
        loader = trainer.train_dataloader
        if isinstance(loader, BucketLoader):
            metrics |= {"padding/waste_before": loader.waste_before, "padding/num_split": num_split}
        self._published.add(trainer, pl_module, outputs, metrics)

    def _clean_up(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._guard = None
