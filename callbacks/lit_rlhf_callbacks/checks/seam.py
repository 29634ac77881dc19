"""What a run remembers of itself, so that a resume can be compared with it."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.distributed.tensor import DTensor

from lit_rlhf_callbacks.checks.ranks import hash_tensor
from lit_rlhf_callbacks.checks.resume import (
    check_data_order,
    check_learning_rate,
    check_optimizer_state,
    check_random_state,
    hash_state,
)
from lit_rlhf_callbacks.checks.tokens import Tokens
from lit_rlhf_callbacks.rng_state import get_rng_state
from lit_rlhf_callbacks.symptoms.finding import CheckResult


class Seam:
    """Follows learning rate, optimiser, random state and windows; compares them where training goes on."""

    def __init__(self) -> None:
        self._now: dict[str, Any] = {}  # of the latest update
        self._saved: dict[str, Any] = {}  # of the update resumed from, until the first one after it
        self._device = torch.device("cpu")

    @property
    def is_open(self) -> bool:
        """Whether the first update after a resume is still to come; the same on all ranks."""
        return bool(self._saved)

    def at_start(self, trainer: Trainer) -> Iterator[CheckResult]:
        """Compare what a checkpoint restores before the first update."""
        self._device = trainer.strategy.root_device
        saved, step = self._saved, trainer.global_step
        if not saved or saved["step"] != step:
            self._saved = {}
            return
        yield check_optimizer_state(saved["num_states"], _num_states(trainer), step=step)
        if trainer.is_global_zero:  # whose state was saved
            yield check_random_state(saved["rng"], hash_state(get_rng_state(self._device)), step=step)

    def after_update(self, trainer: Trainer, tokens: Tokens, lr: float) -> Iterator[CheckResult]:
        """Note an update, and compare the first one after a resume.

        Args:
            trainer: After the update.
            tokens: Of its last micro-batch.
            lr: It was made with.
        """
        window, step = _hash_rows(tokens), trainer.global_step
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        is_first = progress.ready <= trainer.accumulate_grad_batches
        saved, self._saved = self._saved, {}
        first = window if is_first else self._now.get("first", saved.get("first"))
        self._now = {
            "step": step,
            "lr": max(float(group["lr"]) for group in trainer.optimizers[0].param_groups),
            "num_states": _num_states(trainer),
            "first": first,
            "last": window,
        }
        if saved:
            yield check_learning_rate(saved["lr"], lr, step=step)
            if trainer.is_global_zero:
                yield check_data_order(saved["first"], saved["last"], window, in_epoch=not is_first, step=step)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume is compared with."""
        return {**self._now, "rng": hash_state(get_rng_state(self._device))} if self._now else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self._saved = dict(state)


def _num_states(trainer: Trainer) -> int:
    return sum(len(optimizer.state) for optimizer in trainer.optimizers)


def _hash_rows(tokens: Tokens) -> int | None:
    """Hash which prompts or rows a micro-batch held; None where it shows none."""
    shown = tokens.get("prompt_ids", tokens.get("input_ids"))
    if shown is None or not shown.numel() or isinstance(shown, DTensor):
        return None
    return hash_tensor(shown.sort().values if shown.dim() == 1 else shown)
