"""One update as the checks see it: its tokens, its metrics, and ways to score again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from lit_rlhf_callbacks.checks import sampler
from lit_rlhf_callbacks.checks.kl import kl_sums
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
        can_score: Whether all ranks have rows, so that all may run a forward; `agree` finds out.
        kl_sums: Of `kl.kl_sums` over all ranks' windows; None where they cannot be known.
    """

    trainer: Trainer
    module: LightningModule
    step: int
    tokens: Tokens = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    can_score: bool = False
    kl_sums: Tensor | None = None
    _shown: list[float] = field(default_factory=lambda: [0.0] * 6)  # has rows, has both log-probs, sums of the KL

    def take(self, tokens: Tokens) -> None:
        """Take this rank's window, and note what the others must know of it."""
        self.tokens = tokens
        rows = tokens.get("input_ids")
        has_rows = rows is not None and len(rows) > 0
        has_kl = has_rows and self.has("logps", "ref_logps") and self.mask.numel() > 0
        sums = kl_sums(tokens["logps"], tokens["ref_logps"], self.mask).tolist() if has_kl else [0.0] * 4
        self._shown = [float(has_rows), float(has_kl), *sums]

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

    def agree(self) -> None:
        """Find out, with all ranks, whether all can score, and what the KL is over all their tokens."""
        mine = torch.tensor(self._shown, device=self.module.device)
        has_rows, has_kl, *sums = self.trainer.strategy.reduce(mine, reduce_op="sum")
        self.can_score = float(has_rows) == self.trainer.world_size
        self.kl_sums = torch.stack(sums) if float(has_kl) == self.trainer.world_size else None

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
