"""One update as the checks see it: its tokens, its metrics, and ways to score again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from lit_rlhf_callbacks.checks import sampler
from lit_rlhf_callbacks.checks.tokens import Tokens, affordable_rows, counted_mask
from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.protocol import offered

Score = Callable[[Tokens], Tensor]


@dataclass
class Look:
    """An update that was just made.

    Args:
        trainer: Its state is that after the update.
        module: Likewise.
        step: Updates made, this one included.
        tokens: Of the whole window, before the update; empty where this rank had no rows or shows none.
        metrics: Of the window.
        facts: What the module, and its data, say of themselves.
        can_score: Whether all ranks have rows, so that all may run a forward.
    """

    trainer: Trainer
    module: LightningModule
    step: int
    tokens: Tokens
    metrics: Mapping[str, float]
    facts: Mapping[str, Any]
    can_score: bool

    @property
    def stage(self) -> str | None:
        """What kind of training it is, as far as the module says."""
        stage = self.facts.get("stage")
        return "rl" if stage is None and "advantages" in self.tokens else stage

    @cached_property
    def mask(self) -> Tensor:
        """Tokens with a log-prob that counts, ``[B, T]``; no column where none are marked."""
        mask = counted_mask(self.tokens) if self.tokens else None
        return mask if mask is not None else torch.zeros(0, 0, dtype=torch.bool)

    @cached_property
    def is_half(self) -> bool:
        """Whether log-probs are computed in 16 bits."""
        dtypes = {parameter.dtype for parameter in self.module.parameters() if parameter.is_floating_point()}
        return "16" in str(self.trainer.precision) or any(torch.finfo(dtype).bits < 32 for dtype in dtypes)

    @property
    def is_sharded(self) -> bool:
        """Whether a forward needs all ranks."""
        return isinstance(self.trainer.strategy, FSDPStrategy | ModelParallelStrategy)

    @cached_property
    def rows(self) -> Tokens:
        """The rows that one further forward is spent on."""
        return affordable_rows(self.tokens)

    def has(self, *names: str) -> bool:
        """Whether tokens of these names were shown."""
        return all(name in self.tokens for name in names)

    def scorer(self, name: str = "score") -> Score | None:
        """Return the module's method of that name, to be called as the protocol says."""
        method = offered(self.module, name, "tokens")
        if method is None or not self.can_score:
            return None

        def score(tokens: Tokens) -> Tensor:
            with observing(self.trainer, self.module):
                return method(tokens).detach()

        return score

    def is_random(self) -> bool:
        """Score a few rows twice in the mode of training; False where that cannot be done."""
        scores_rows = self.stage == "reward_model"
        method = offered(self.module, "score_rewards" if scores_rows else "score", "tokens")
        if method is None or self.is_sharded or not self.tokens:
            return False
        rows = affordable_rows(self.tokens, max_tokens=512)
        mask = rows["input_ids"][:, 0] >= 0 if scores_rows else counted_mask(rows)
        if mask is None or not mask.any():
            return False
        with isolate_rng(), torch.no_grad(), self.trainer.precision_plugin.forward_context():
            return sampler.is_random(lambda: method(rows), mask)
