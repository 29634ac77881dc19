"""The token budget of a module that computes its micro-batches in parts itself: tried before the first update."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from lit_rlhf_callbacks.dry_run import room_for_optimizer
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.oom import unless_out_of_memory
from lit_rlhf_callbacks.undisturbed import leaving_no_trace

Forward = tuple[int, Callable[[], Tensor]]  # padded tokens, and what computes the loss


def try_budget(
    trainer: Trainer, pl_module: LightningModule, set_budget: Callable[..., Any], largest_forward: Callable[[], Any]
) -> int | None:
    """Run the module's largest forward and its backward, and lower the budget on all ranks until it fits on all.

    Args:
        trainer: the trainer, at the start of training.
        pl_module: the module.
        set_budget: its ``set_token_budget``.
        largest_forward: its ``largest_forward``.

    Returns:
        The budget, if it had to be set.

    Raises:
        UserError: a single row does not fit.
    """
    budget, smallest = None, float("inf")
    while True:
        tokens, fits = _attempt(trainer, pl_module, largest_forward())
        if fits:
            return budget
        if tokens >= smallest:
            raise UserError(
                f"LengthBucketing: out of memory in a dry run before the first update; {tokens} padded tokens cannot "
                "be cut further; cut rows shorter (max_length), or make room (gradient checkpointing, a smaller model)."
            )
        budget, smallest = tokens // 2, tokens
        set_budget(tokens=budget)
        rank_zero_info(
            f"LengthBucketing: {tokens} padded tokens ran out of memory in a dry run before the first update; from now "
            f"on no forward holds more than {budget}."
        )


def _attempt(trainer: Trainer, pl_module: LightningModule, largest: Forward | None) -> tuple[int, bool]:
    """Return the padded tokens of the largest forward of any rank, and whether it fits on all of them."""
    tokens, compute = largest if largest is not None else (0, None)

    def run() -> None:
        if compute is not None:
            with trainer.precision_plugin.train_step_context(), torch.enable_grad():
                loss = compute()
            loss.backward()

    with leaving_no_trace(pl_module):
        room = room_for_optimizer(trainer, pl_module)
        _, fits = unless_out_of_memory(run)
        del room
    mine = torch.tensor([tokens, int(fits)], device=pl_module.device)
    everybodys = trainer.strategy.all_gather(mine).view(-1, 2)
    return int(everybodys[:, 0].max()), bool(everybodys[:, 1].min())
