"""What the preference family shares: one forward over pairs, a reference, and the absolute numbers margins hide."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.known_bad import warn_of_sum_scale_beta
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.offline import OfflineAlgorithm, Shown
from lit_rlhf.algorithms.reference_table import load_or_score
from lit_rlhf.data.batches import Batch
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.functional.preference_losses import PreferenceLoss
from lit_rlhf_callbacks.errors import UserError


@dataclass(kw_only=True)
class PairLogps:
    """Log-probs of B pairs, each ``[B]``: sums over a completion's tokens, or means."""

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    ref_rejected: Tensor


@dataclass(eq=False, repr=False, kw_only=True)
class Preference(OfflineAlgorithm):
    """Learning from pairs of a chosen and a rejected completion: what the family shares. Use one of the subclasses."""

    beta: float = 0.1
    """How strongly the policy is held to the reference; each class has its own scale."""

    logps_over: Literal["sum", "mean"] = "sum"
    """Compare log-probs summed over a completion's tokens, or their mean, which has no preference for length."""

    nll_coef: float = 0.0
    """Weight of the chosen completions' negative log-likelihood per token, averaged over the window's pairs."""

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(1e-6))  # type: ignore[assignment]
    """What steps on the trainable parameters."""

    data_kind: ClassVar[Kind] = "paired"
    mean_beta: ClassVar[float | None] = 2.0  # the usual β where log-probs are means; None: β means something else

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ref_tables: dict[str, dict[int, Tensor]] = {}

    def needs_reference(self) -> bool:
        """Tell whether reference log-probs are used."""
        return True

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return the loss of each pair, ``[B]``."""
        raise NotImplementedError

    def init_loss(self) -> float | None:
        """Return the loss before the first update, where policy and reference are the same; None: not known."""
        return None

    def step0_values(self) -> dict[str, float]:
        """Return what holds before the first update, whatever the data."""
        value = self.init_loss()
        known = {} if value is None or self.nll_coef else {"preference_loss": value}
        return {**known, "rewards/margins": 0.0} if self.needs_reference() else known

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of pair losses over the window's pairs; chosen and rejected go through one forward."""
        mask = tensors["score_mask"]
        scores = self.backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask)
        chosen, rejected = self._pairs((scores.logps * mask).sum(-1), mask)
        ref_chosen, ref_rejected, ref_shown = self._reference(tensors)
        result = self.pair_loss(
            PairLogps(chosen=chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
        )
        share = result.losses.sum() / batch.num_examples
        if self.nll_coef:
            share = share + self.nll_coef * -_means(scores.logps, mask)[0::2].sum() / batch.num_examples
        shown = {
            "input_ids": tensors["input_ids"],
            "attention_mask": tensors["attention_mask"],
            "completion_mask": mask,
            "logps": scores.logps.detach(),
            "entropy": scores.entropy.detach(),
            "losses": result.losses.detach(),
            "chosen_mask": torch.arange(len(mask), device=mask.device) % 2 == 0,
            "chosen_rewards": result.chosen_rewards,
            "rejected_rewards": result.rejected_rewards,
        }
        return share, shown | ref_shown

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add loss, rewards, accuracy, and the absolute log-probs that margins hide."""
        chosen, rejected = shown["chosen_rewards"], shown["rejected_rewards"]
        num_pairs = len(chosen)
        meter.add_mean(f"{prefix}preference_loss", shown["losses"].sum(), num_pairs)
        meter.add_mean(f"{prefix}rewards/chosen", chosen.sum(), num_pairs)
        meter.add_mean(f"{prefix}rewards/rejected", rejected.sum(), num_pairs)
        meter.add_mean(f"{prefix}rewards/margins", (chosen - rejected).sum(), num_pairs)
        accuracy = (chosen > rejected).float() + 0.5 * (chosen == rejected).float()  # a tie is half a success
        meter.add_mean(f"{prefix}rewards/accuracies", accuracy.sum(), num_pairs)
        logps, mask = shown["logps"], shown["completion_mask"]
        sums = (logps * mask).sum(-1)
        meter.add_mean(f"{prefix}logps/chosen", sums[0::2].sum(), num_pairs)
        meter.add_mean(f"{prefix}logps/rejected", sums[1::2].sum(), num_pairs)
        meter.add_masked(f"{prefix}logps/chosen_per_token", logps[0::2], mask[0::2])
        meter.add_masked(f"{prefix}logps/rejected_per_token", logps[1::2], mask[1::2])
        meter.add_masked(f"{prefix}entropy", shown["entropy"], mask)

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        return {**super().run_facts(), "stage": "preference", "beta": self.beta, "logps_over": self.logps_over}

    def setup(self, stage: str) -> None:
        """Warn of a β of another scale."""
        super().setup(stage)
        if self.mean_beta is not None:
            warn_of_sum_scale_beta(self, usual=self.mean_beta)

    def on_fit_start(self) -> None:
        """Score the training data with the start policy, once and on disk, where that is the reference."""
        super().on_fit_start()
        self._load_table("train")

    def on_validation_start(self) -> None:
        """Score the held-out data likewise."""
        self._load_table("eval")

    def _load_table(self, split: Literal["train", "eval"]) -> None:
        if self.reference == "precomputed" and self.needs_reference() and split not in self.ref_tables:
            data = self.trainer.datamodule  # type: ignore[attr-defined]
            examples = data.train_examples if split == "train" else data.eval_examples
            self.ref_tables[split] = load_or_score(self.model, self.backbone.start_hash, examples, self.device)

    def _reference(self, tensors: Shown) -> tuple[Tensor, Tensor, Shown]:
        """Return the reference's log-probs of chosen and rejected, ``[B]`` each, and per token where they are live."""
        mask = tensors["score_mask"]
        if not self.needs_reference():
            nothing = torch.zeros(len(mask) // 2, device=mask.device)
            return nothing, nothing, {}
        if self.reference == "precomputed":
            table = self.ref_tables["train" if self.trainer.training else "eval"]
            sums = torch.cat([table[row][:, 0] for row in tensors["row"].tolist()]).to(mask.device)
            return *self._pairs(sums, mask), {"ref_logps_sum": sums}
        scores = self.backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask, reference=True)
        return *self._pairs((scores.logps * mask).sum(-1), mask), {"ref_logps": scores.logps}

    def _pairs(self, sums: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return chosen and rejected, ``[B]`` each, from sums over tokens ``[2B]``."""
        values = sums / mask.sum(-1) if self.logps_over == "mean" else sums
        return values[0::2], values[1::2]


def check_label_smoothing(epsilon: float) -> None:
    """Refuse a share of wrong labels that would turn preferences around.

    Raises:
        UserError: If it is below 0, or 0.5 and above.
    """
    if not 0 <= epsilon < 0.5:
        raise UserError(
            f"model.label_smoothing: {epsilon:g} of all labels wrong is not between 0 and below 0.5; where most labels "
            "are wrong, swap chosen and rejected"
        )


def _means(logps: Tensor, mask: Tensor) -> Tensor:
    return (logps * mask).sum(-1) / mask.sum(-1)
