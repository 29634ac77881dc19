"""Resuming as if nothing had happened: the random state of every rank, and the hours spent."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf_callbacks.rng_state import get_rng_state, set_rng_state
from lit_rlhf_callbacks.run_clock import run_clock

_KEY = "lit_rlhf_rng"


class ExactResume(Callback):
    """Put the random states of all ranks into each checkpoint, and take them back when training goes on.

    Lightning saves weights, optimisers and progress, but no random state. With a data loader that saves its place
    (``state_dict`` and ``load_state_dict``) and draws its order from a generator of its own, N steps, a kill and a
    resume are then the run that was never stopped, bit for bit on the same machine.

    A checkpoint from inside an accumulation window, as one saved by the clock may be, holds no gradients: a resume
    loses the micro-batches so far. That is said, too.

    Resumed with another number of ranks, a run cannot be the same; that is said, and the states are left alone.
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self) -> None:
        self._restored: list[dict[str, Any]] | None = None
        self._step, self._num_open = 0, 0  # micro-batches since the last update
        self._has_warned = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the micro-batches of the open window."""
        self._num_open = self._num_open + 1 if trainer.global_step == self._step else 0
        self._step = trainer.global_step

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Gather all ranks' states into the checkpoint, which rank 0 writes."""
        state = get_rng_state(trainer.strategy.root_device)
        states: list[Any] = [state]
        if trainer.world_size > 1:
            states = [None] * trainer.world_size
            torch.distributed.all_gather_object(states, state)
        checkpoint[_KEY] = states
        if self._num_open and not self._has_warned:
            self._has_warned = True
            rank_zero_warn(
                f"ExactResume: this checkpoint was saved after {self._num_open} of {trainer.accumulate_grad_batches} "
                f"micro-batches of update {trainer.global_step + 1}; a resume from it loses their gradients. Save by "
                "updates (every_n_train_steps) rather than by the clock or by batches."
            )
        run_clock(trainer).save(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the states until training starts: what happens until then must not use them up."""
        self._restored = checkpoint.get(_KEY) if trainer.training else None
        run_clock(trainer).load(checkpoint)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take this rank's state back."""
        run_clock(trainer).start()
        self._step, self._num_open = trainer.global_step, 0
        states, self._restored = self._restored, None
        if states is None:
            return
        if len(states) != trainer.world_size:
            rank_zero_warn(
                f"ExactResume: saved by {len(states)} ranks, resumed by {trainer.world_size}: random states are not "
                "restored, so this run will differ from one that was never stopped."
            )
            return
        set_rng_state(states[trainer.global_rank], trainer.strategy.root_device)
