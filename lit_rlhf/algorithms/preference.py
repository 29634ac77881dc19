"""The preference family: each algorithm is a loss on the log-probs of a chosen and a rejected completion.

==========  ==========================================================================  =========  ===================
class       loss, with r = log π − log π_ref of a completion and h = r_c − r_r           log-probs  paper
==========  ==========================================================================  =========  ===================
DPO         −log σ(βh)                                                                   sums       arXiv 2305.18290
CDPO        −(1−ε) log σ(βh) − ε log σ(−βh)                                              sums       ericmitchell.ai/cdpo
RobustDPO   (−(1−ε) log σ(βh) + ε log σ(−βh)) / (1−2ε)                                   sums       arXiv 2403.00409
DPONorm     −log σ(βh)                                                                   means      arXiv 2411.15124
IPO         (h − 1/(2β))²                                                                either     arXiv 2310.12036
Hinge       max(0, 1 − βh)                                                               sums       arXiv 2305.10425
SimPO       −log σ(β(log π_c − log π_r − γ))                                             means      arXiv 2405.14734
CPO         −log σ(β(log π_c − log π_r)) + NLL of the chosen                             sums       arXiv 2401.08417
ORPO        NLL of the chosen − β log σ(log odds ratio)                                  means      arXiv 2403.07691
APOZero     1 − σ(βr_c) + σ(βr_r)                                                        sums       arXiv 2408.06266
APODown     σ(βr_c) + 1 − σ(βh)                                                          sums       arXiv 2408.06266
==========  ==========================================================================  =========  ===================
"""

import math
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
from lit_rlhf.functional.preference_losses import (
    FDivergence,
    PreferenceLoss,
    apo_down_loss,
    apo_zero_loss,
    cpo_loss,
    dpo_loss,
    hinge_loss,
    ipo_loss,
    orpo_odds_loss,
    robust_dpo_loss,
    simpo_loss,
)
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
            return *self._pairs(sums, mask), {}
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


@dataclass(eq=False, repr=False, kw_only=True)
class DPO(Preference):
    """Direct preference optimisation: a classifier whose logit is β times the difference of implicit rewards."""

    f_divergence: FDivergence = "reverse_kl"
    """Which divergence holds the policy to the reference (arXiv 2309.16240)."""

    alpha: float = 0.5
    """Of the ``alpha`` divergence, between 0 (reverse KL) and 1 (forward KL)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha < 1:
            raise UserError(
                f"model.alpha: of the alpha divergence it is above 0 and below 1, got {self.alpha:g}; set 0.5"
            )

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return -log σ(βh)."""
        return dpo_loss(
            logps.chosen,
            logps.rejected,
            logps.ref_chosen,
            logps.ref_rejected,
            beta=self.beta,
            f_divergence=self.f_divergence,
            alpha=self.alpha,
        )

    def init_loss(self) -> float | None:
        """Return ln 2."""
        return math.log(2)


@dataclass(eq=False, repr=False, kw_only=True)
class CDPO(Preference):
    """Conservative DPO: the labels are right with probability 1 - ε."""

    label_smoothing: float = 0.1
    """ε: how often a label is wrong."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_label_smoothing(self.label_smoothing)

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return the cross-entropy with smoothed labels."""
        return dpo_loss(
            logps.chosen,
            logps.rejected,
            logps.ref_chosen,
            logps.ref_rejected,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
        )

    def init_loss(self) -> float | None:
        """Return ln 2."""
        return math.log(2)


@dataclass(eq=False, repr=False, kw_only=True)
class RobustDPO(Preference):
    """DPO with the bias of noisy labels removed."""

    label_smoothing: float = 0.1
    """ε: how often a label is wrong; below 0.5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_label_smoothing(self.label_smoothing)

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return the de-biased loss."""
        return robust_dpo_loss(
            logps.chosen,
            logps.rejected,
            logps.ref_chosen,
            logps.ref_rejected,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
        )

    def init_loss(self) -> float | None:
        """Return ln 2."""
        return math.log(2)


@dataclass(eq=False, repr=False, kw_only=True)
class DPONorm(DPO):
    """DPO on means over tokens, whose β is of another scale."""

    beta: float = 2.0
    logps_over: Literal["sum", "mean"] = "mean"


@dataclass(eq=False, repr=False, kw_only=True)
class IPO(Preference):
    """A squared distance to the margin 1/(2β); its values do not compare with other losses'."""

    logps_over: Literal["sum", "mean"] = "mean"
    mean_beta: ClassVar[float | None] = None

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return (h - 1/(2β))²."""
        return ipo_loss(logps.chosen, logps.rejected, logps.ref_chosen, logps.ref_rejected, beta=self.beta)

    def init_loss(self) -> float | None:
        """Return (1/(2β))²."""
        return (1 / (2 * self.beta)) ** 2


@dataclass(eq=False, repr=False, kw_only=True)
class Hinge(Preference):
    """A margin loss (SLiC): a pair teaches until βh reaches 1."""

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return max(0, 1 - βh)."""
        return hinge_loss(logps.chosen, logps.rejected, logps.ref_chosen, logps.ref_rejected, beta=self.beta)

    def init_loss(self) -> float | None:
        """Return 1."""
        return 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class SimPO(Preference):
    """No reference: mean log-probs must differ by a target margin."""

    beta: float = 2.0
    logps_over: Literal["sum", "mean"] = "mean"

    gamma: float = 0.5
    """The target margin of mean log-probs (the paper's γ/β)."""

    def needs_reference(self) -> bool:
        """No reference."""
        return False

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return -log σ(β(difference of means - γ))."""
        return simpo_loss(logps.chosen, logps.rejected, beta=self.beta, gamma=self.gamma)


@dataclass(eq=False, repr=False, kw_only=True)
class CPO(Preference):
    """Contrastive preference optimisation: DPO with a uniform reference, and the chosen completions' likelihood."""

    nll_coef: float = 1.0

    def needs_reference(self) -> bool:
        """No reference."""
        return False

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return -log σ(β × difference of log-probs)."""
        return cpo_loss(logps.chosen, logps.rejected, beta=self.beta)


@dataclass(eq=False, repr=False, kw_only=True)
class ORPO(Preference):
    """Likelihood of the chosen completion and the odds of it against the rejected one, without a reference."""

    logps_over: Literal["sum", "mean"] = "mean"
    nll_coef: float = 1.0
    mean_beta: ClassVar[float | None] = None

    def needs_reference(self) -> bool:
        """No reference."""
        return False

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return -β log σ(log odds ratio)."""
        return orpo_odds_loss(logps.chosen, logps.rejected, beta=self.beta)


@dataclass(eq=False, repr=False, kw_only=True)
class APOZero(Preference):
    """Anchored: the chosen completion becomes likelier, the rejected one less likely, each by itself."""

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return 1 - σ(βr_c) + σ(βr_r)."""
        return apo_zero_loss(logps.chosen, logps.rejected, logps.ref_chosen, logps.ref_rejected, beta=self.beta)

    def init_loss(self) -> float | None:
        """Return 1."""
        return 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class APODown(Preference):
    """Anchored: both completions become less likely, the rejected one faster. For chosen ones that are not good."""

    def pair_loss(self, logps: PairLogps) -> PreferenceLoss:
        """Return σ(βr_c) + 1 - σ(βh)."""
        return apo_down_loss(logps.chosen, logps.rejected, logps.ref_chosen, logps.ref_rejected, beta=self.beta)

    def init_loss(self) -> float | None:
        """Return 1."""
        return 1.0
