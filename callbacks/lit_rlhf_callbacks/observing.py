"""Using a model from a callback without the training noticing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.seed import isolate_rng


@contextmanager
def observing(trainer: Trainer, pl_module: LightningModule) -> Iterator[None]:
    """Put a module into evaluation mode, without gradients, in the trainer's precision.

    Afterwards the mode of every submodule, the gradient mode and all random states are what they were. Lightning turns
    autocast on in ``training_step`` and ``validation_step`` only, so a callback has to do it itself.
    """
    modes = {module: module.training for module in pl_module.modules()}
    with isolate_rng(), torch.no_grad(), trainer.precision_plugin.forward_context():
        pl_module.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
