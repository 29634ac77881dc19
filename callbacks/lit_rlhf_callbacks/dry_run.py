"""The batch that needs most memory, before the first update instead of after hours."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lit_rlhf_callbacks.oom_guard import OomGuard
from lit_rlhf_callbacks.parts import loss_of
from lit_rlhf_callbacks.splitting import SHARDED
from lit_rlhf_callbacks.undisturbed import leaving_no_trace


def dry_run(trainer: Trainer, pl_module: LightningModule, guard: OomGuard, batch: Any) -> Any:
    """Compute one batch forward and backward, with room taken for the optimiser's state, and leave no trace.

    Gradients, random states, buffers, metric objects, plain attributes of the module and what it logs are as before;
    the optimiser makes no step. Not every rank's gradients are exchanged, so ranks need not fail together.

    Args:
        trainer: the trainer, at the start of training.
        pl_module: the module.
        guard: learns the limit, or stops the run.
        batch: as the loader's ``collate_fn`` makes it.

    Returns:
        The batch, on the device.
    """
    guard.is_dry_run = True
    with leaving_no_trace(pl_module), torch.enable_grad():
        batch = trainer.precision_plugin.convert_input(batch)
        batch = pl_module._on_before_batch_transfer(batch)  # Lightning's loop has no public way to it either
        batch = trainer.strategy.batch_to_device(batch)
        room = room_for_optimizer(trainer, pl_module)
        _forward_backward(trainer, pl_module, guard, batch)
        del room
    guard.is_dry_run = False
    return batch


def _forward_backward(trainer: Trainer, pl_module: LightningModule, guard: OomGuard, batch: Any) -> None:
    args = (batch, 0) if guard.takes_batch_idx else (batch,)
    if isinstance(trainer.strategy, SHARDED):  # their weights are whole only inside the wrapper's forward
        output = trainer.strategy.training_step(*args)
    else:  # past the wrapper of DDP, which would wait for the other ranks
        with trainer.precision_plugin.train_step_context():
            output = pl_module.training_step(*args)
    if output is not None:
        guard.backward_of(loss_of(output) / 1, lambda loss: loss.backward(), divisor=1)  # / 1: not the module's own


def room_for_optimizer(trainer: Trainer, pl_module: LightningModule) -> list[Tensor]:
    """Hold as much as the optimisers will hold from their first step on; on the CPU nothing would be measured."""
    if pl_module.device.type != "cuda":
        return []
    room = []
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            copies = 2 if "betas" in group else int(bool(group.get("momentum")))
            missing = [p for p in group["params"] if p.requires_grad and p not in optimizer.state]
            room += [torch.empty_like(p) for p in missing for _ in range(copies)]
    return room
