"""Runs that are stopped, or killed, and go on; also a program: ``python resume_runs.py '{"model": ..., ...}'``."""

import json
import sys
import time
from pathlib import Path

import short_runs
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from lit_rlhf_callbacks import ExactResume

# Two phases per epoch (of 4 and of 2 prompts), each of four updates: updates 1 to 8 are the first epoch.
SETTINGS = {"windows_per_phase": 2, "epochs_per_phase": 2, "accumulate": 2, "beta": 0.1, "entropy_coef": 0.01}
NUM_UPDATES = 10


class WaitAfter(Callback):
    """Say when an update and its checkpoint are made, and wait there to be killed."""

    def __init__(self, update):
        self.update = update

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.update:
            print(f"update {self.update}", flush=True)
            time.sleep(600)


def resumable(name, folder, train=short_runs.train, wait_after=None, evaluate=False, updates=NUM_UPDATES, **settings):
    """Train with AdamW, a checkpoint after every update in ``folder``, and what a user would add to resume exactly.

    Args:
        name: An algorithm's class name.
        folder: Gets ``step=N.ckpt`` and ``last.ckpt``.
        train: `short_runs.train`, or what does the same on one of two ranks.
        wait_after: The update after which to wait for the end.
        evaluate: Measure held-out pass@1 after every update, and save then.
        updates: How many there are.
        settings: Further settings of `short_runs.train`.
    """
    saved_when = {"monitor": "eval/pass_at_1", "mode": "max"} if evaluate else {"every_n_train_steps": 1}
    checkpoint = ModelCheckpoint(folder, save_top_k=-1, filename="{step}", save_last=True, **saved_when)
    evaluation = {"limit_val_batches": 1.0, "val_check_interval": SETTINGS["accumulate"]} if evaluate else {}
    return train(
        name,
        updates=updates,
        callbacks=[ExactResume(), checkpoint, *([WaitAfter(wait_after)] if wait_after else [])],
        trainer={"enable_checkpointing": True, **evaluation},
        optimizer=short_runs.optimizer("AdamW", 1e-2),
        lr_scheduler={"class_path": "torch.optim.lr_scheduler.ExponentialLR", "init_args": {"gamma": 0.9}},
        **{**SETTINGS, **settings},
    )


def resumable_on_two_ranks(name, folder, **settings):
    return resumable(name, folder, short_runs.train_one_of_two, **settings)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    resumable(arguments.pop("name"), Path(arguments.pop("folder")), **arguments)
