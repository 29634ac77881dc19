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
from dataclasses import dataclass
from typing import ClassVar, Literal

from lit_rlhf.algorithms.pairs import PairLogps, Preference, check_label_smoothing
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
