"""Kahneman-Tversky optimisation: learning from single completions that were judged good or bad."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.forwards import SCORING_TOKENS, dummy_share
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.offline import OfflineAlgorithm, Shown
from lit_rlhf.algorithms.ranks import max_over_ranks, sum_over_ranks
from lit_rlhf.data.batches import Batch
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.samples import Example, mismatched
from lit_rlhf.functional.preference_losses import kto_loss
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.windows import split_by_budget


@dataclass(eq=False, repr=False, kw_only=True)
class KTO(OfflineAlgorithm):
    """KTO (arXiv 2402.01306): good completions should gain, and bad ones lose, against a moving reference point.

    The reference point is the paper's: the KL on prompts paired with *other* prompts' completions, over the whole
    window and all ranks before its first micro-batch, so that how a window is cut does not change the gradient.
    """

    beta: float = 0.1
    """How strongly the policy is held to the reference."""

    desirable_weight: float = 1.0
    """Weight of good completions."""

    undesirable_weight: float = 1.0
    """Weight of bad ones; the paper balances the two when there are many more of one kind."""

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(1e-6))  # type: ignore[assignment]
    """What steps on the trainable parameters."""

    data_kind: ClassVar[Kind] = "unpaired"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference == "precomputed":
            raise UserError("model.reference: KTO scores mismatched pairs, which no table holds; use auto")
        self.kl = torch.zeros(())

    def setup(self, stage: str) -> None:
        """Ask the loader for other rows' completions, which the reference point is estimated on."""
        super().setup(stage)
        self.trainer.datamodule.with_strangers = True  # type: ignore[attr-defined]

    def needs_reference(self) -> bool:
        """Tell whether reference log-probs are used."""
        return True

    def step0_values(self) -> dict[str, float]:
        """Return what holds before the first update, whatever the data."""
        even = self.desirable_weight == self.undesirable_weight == 1
        return {"kl": 0.0, **({"preference_loss": 0.5} if even else {})}

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Estimate the reference point when a window begins, then return the loss of one micro-batch."""
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self.kl = self.estimate_kl(batch.window)
            self.meter.add_max("kl", self.kl)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collect the held-out metrics of one batch, against that batch's own reference point."""
        before, self.kl = self.kl, self.estimate_kl(batch.window)
        super().validation_step(batch, batch_idx)
        self.kl = before

    @torch.no_grad()
    def estimate_kl(self, window: list[tuple[Example, Example]]) -> Tensor:
        """Return the mean log-ratio of completions to prompts that they do not belong to, over all ranks.

        Args:
            window: This rank's examples of the window, each with another prompt's example.
        """
        pairs = [mismatched(example, other) for example, other in window]
        budget = self.max_tokens_per_forward or SCORING_TOKENS
        parts = split_by_budget([pair.length for pair in pairs], budget) if pairs else []
        num_parts = int(max_over_ranks(torch.tensor(len(parts))))  # asked before any forward: ranks stay in step
        total = torch.zeros(2, dtype=torch.float64)
        for part in parts:
            tensors = self._on_device([pairs[place] for place in part])
            policy, reference = self._sums(tensors, reference=False), self._sums(tensors, reference=True)
            total += torch.tensor([float((policy - reference).sum()), float(len(part))], dtype=torch.float64)
        for _ in range(num_parts - len(parts)):
            dummy_share(self.backbone)
            dummy_share(self.backbone, reference=True)
        log_ratios, count = sum_over_ranks(total).tolist()
        return torch.tensor(max(log_ratios / max(count, 1.0), 0.0), dtype=torch.float32, device=self.device)

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of losses over the window's examples."""
        mask, good_mask = tensors["score_mask"], tensors["label"] > 0.5
        scores = self.backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask)
        ref_logps = self.backbone.score_tokens(
            tensors["input_ids"], tensors["attention_mask"], mask, reference=True
        ).logps
        logps, ref = (scores.logps * mask).sum(-1), (ref_logps * mask).sum(-1)
        losses = kto_loss(
            logps,
            ref,
            good_mask,
            self.kl,
            beta=self.beta,
            desirable_weight=self.desirable_weight,
            undesirable_weight=self.undesirable_weight,
        )
        shown = {
            "input_ids": tensors["input_ids"],
            "attention_mask": tensors["attention_mask"],
            "completion_mask": mask,
            "logps": scores.logps.detach(),
            "ref_logps": ref_logps,
            "entropy": scores.entropy.detach(),
            "losses": losses.detach(),
            "good_mask": good_mask,
            "chosen_mask": good_mask,
            "implicit_rewards": self.beta * (logps - ref).detach(),
        }
        return losses.sum() / batch.num_examples, shown

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add loss, and rewards and log-probs of good (chosen) and bad (rejected) completions."""
        good, rewards = shown["good_mask"], shown["implicit_rewards"]
        sums = (shown["logps"] * shown["completion_mask"]).sum(-1)
        meter.add_mean(f"{prefix}preference_loss", shown["losses"].sum(), len(good))
        for name, mask in (("chosen", good), ("rejected", ~good)):
            meter.add_masked(f"{prefix}rewards/{name}", rewards, mask)
            meter.add_masked(f"{prefix}logps/{name}", sums, mask)
        meter.add_masked(f"{prefix}entropy", shown["entropy"], shown["completion_mask"])

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        return {**super().run_facts(), "stage": "preference", "beta": self.beta}

    def _sums(self, tensors: Shown, *, reference: bool) -> Tensor:
        mask = tensors["score_mask"]
        scores = self.backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask, reference=reference)
        return (scores.logps * mask).sum(-1)
