"""The policy-gradient family: each algorithm is an advantage, a per-token loss and a denominator.

===================  ======================  =============================  ====================  =====================
class                advantage               per-token loss                 aggregation           paper
===================  ======================  =============================  ====================  =====================
Reinforce            R                       -A logπ                        seq_mean_token_sum    Williams 1992
ReinforcePlusPlus    R - KL-to-go, whitened  clipped ratio                  token_mean            arXiv 2501.03262
RLOO                 R - mean of the others  clipped ratio                  seq_mean_token_sum    arXiv 2402.14740
GRPO                 (R - mean) / std        clipped ratio                  seq_mean_token_mean   arXiv 2402.03300
DrGRPO               R - mean                clipped ratio                  constant              arXiv 2503.20783
DAPO                 (R - mean) / std        clipped ratio, higher above    token_mean            arXiv 2503.14476
GSPO                 (R - mean) / std        clipped sequence ratio         seq_mean_token_mean   arXiv 2507.18071
CISPO                (R - mean) / std        -sg(clipped ratio) A logπ      token_mean            arXiv 2506.13585
SAPO                 (R - mean) / std        soft gate on the ratio         seq_mean_token_mean   arXiv 2511.20347
MaxRL                (R - mean) / mean       -A logπ                        seq_mean_token_mean   arXiv 2602.02710
===================  ======================  =============================  ====================  =====================
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lit_rlhf.algorithms.policy_gradient_base import PolicyGradient
from lit_rlhf.algorithms.ranks import sum_over_ranks
from lit_rlhf.functional.advantages import (
    Baseline,
    Scale,
    baseline_advantages,
    maxrl_advantages,
    returns_to_go,
    whiten,
)
from lit_rlhf.functional.aggregation import Aggregation
from lit_rlhf.functional.kl import KLEstimator
from lit_rlhf.functional.policy_losses import (
    PolicyLoss,
    cispo_loss,
    gspo_loss,
    reinforce_loss,
    sapo_loss,
)
from lit_rlhf.rollout.experience import Experience
from lit_rlhf_callbacks.errors import UserError


@dataclass(eq=False, repr=False, kw_only=True)
class Reinforce(PolicyGradient):
    """The plain policy gradient: every token of a completion is weighted by the completion's reward."""

    group_size: int = 1
    baseline: Baseline = "none"
    advantage_scale: Scale = "none"
    aggregation: Aggregation = "seq_mean_token_sum"
    unused = ("clip_low", "clip_high", "clip_dual")

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return -A logπ."""
        return reinforce_loss(logps, advantages)


@dataclass(eq=False, repr=False, kw_only=True)
class ReinforcePlusPlus(PolicyGradient):
    """REINFORCE with a per-token KL in the reward, whitened over the whole batch, and PPO's clip."""

    group_size: int = 1
    baseline: Baseline = "none"
    advantage_scale: Scale = "batch"
    aggregation: Aggregation = "token_mean"
    kl_estimator: KLEstimator = "k1"
    kl_in: Literal["loss", "reward"] = "reward"
    unused = ("advantage_scale",)

    def compute_advantages(self, experience: Experience) -> Tensor:
        """Return reward minus KL still to come, whitened over all tokens of all ranks, ``[N, T]``."""
        mask = experience.completion_mask
        rewards = baseline_advantages(experience.rewards, experience.prompt_ids, baseline=self.baseline, scale="none")
        returns = rewards[:, None].expand(mask.shape)
        if self.beta and self.kl_in == "reward":
            returns = returns - self.beta * returns_to_go(self._token_kl(experience), mask)
        return whiten(returns, mask, reduce=sum_over_ranks)


@dataclass(eq=False, repr=False, kw_only=True)
class RLOO(PolicyGradient):
    """REINFORCE with the mean of a prompt's other completions as baseline."""

    group_size: int = 4
    baseline: Baseline = "leave_one_out"
    advantage_scale: Scale = "none"
    aggregation: Aggregation = "seq_mean_token_sum"
    kl_estimator: KLEstimator = "k1"
    kl_in: Literal["loss", "reward"] = "reward"


@dataclass(eq=False, repr=False, kw_only=True)
class GRPO(PolicyGradient):
    """Group relative policy optimisation: rewards standardised within each prompt's group."""

    aggregation: Aggregation = "seq_mean_token_mean"


@dataclass(eq=False, repr=False, kw_only=True)
class DrGRPO(PolicyGradient):
    """GRPO without its two biases: no division by the group's std, none by a completion's own length."""

    advantage_scale: Scale = "none"
    aggregation: Aggregation = "constant"


@dataclass(eq=False, repr=False, kw_only=True)
class DAPO(PolicyGradient):
    """GRPO with a higher upper clip, dynamic sampling and a token mean.

    Its soft overlong punishment is the reward function ``overlong``.
    """

    clip_high: float = 0.28
    aggregation: Aggregation = "token_mean"
    drop_zero_std: bool = True
    max_refill_rounds: int = 3


@dataclass(eq=False, repr=False, kw_only=True)
class GSPO(PolicyGradient):
    """GRPO with one ratio per sequence, the geometric mean of its tokens' ratios."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    aggregation: Aggregation = "seq_mean_token_mean"
    unused = ("clip_dual",)

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return the clipped loss of the sequence ratio."""
        return gspo_loss(logps, old_logps, advantages, mask, clip_low=self.clip_low, clip_high=self.clip_high)


@dataclass(eq=False, repr=False, kw_only=True)
class CISPO(PolicyGradient):
    """Clip the importance weight instead of the update, so that every token keeps teaching."""

    clip_low: float = 1.0
    clip_high: float = 4.0
    aggregation: Aggregation = "token_mean"
    unused = ("clip_dual",)

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return -sg(clipped ratio) A logπ."""
        return cispo_loss(logps, old_logps, advantages, clip_low=self.clip_low, clip_high=self.clip_high)


@dataclass(eq=False, repr=False, kw_only=True)
class SAPO(PolicyGradient):
    """A sigmoid gate on the ratio in place of the clip."""

    aggregation: Aggregation = "seq_mean_token_mean"
    unused = ("clip_low", "clip_high", "clip_dual")

    tau_pos: float = 1.0
    """The gate's temperature for tokens with a positive advantage."""

    tau_neg: float = 1.05
    """The gate's temperature for tokens with a negative advantage."""

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return the gated loss."""
        return sapo_loss(logps, old_logps, advantages, tau_pos=self.tau_pos, tau_neg=self.tau_neg)


@dataclass(eq=False, repr=False, kw_only=True)
class MaxRL(PolicyGradient):
    """Divide by the success rate: the gradient of the log-likelihood of success, so hard prompts weigh more."""

    advantage_scale: Scale = "none"
    aggregation: Aggregation = "seq_mean_token_mean"
    unused = ("baseline", "advantage_scale", "clip_low", "clip_high", "clip_dual")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta and self.kl_in == "reward":
            raise UserError(
                "model.kl_in: reward, but MaxRL divides by a prompt's mean reward, which a KL would make negative; "
                "set kl_in: loss"
            )

    def reward_advantages(self, rewards: Tensor, prompt_ids: Tensor) -> Tensor:
        """Return (reward - group mean) / group mean, ``[N]``."""
        if (rewards < 0).any():
            raise UserError(
                f"model.rewards: MaxRL divides by a prompt's mean reward, so none may be negative, got "
                f"{rewards.min().item():g}; use 0 for wrong and 1 for right, or GRPO"
            )
        return maxrl_advantages(rewards, prompt_ids)

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return -A logπ."""
        return reinforce_loss(logps, advantages)
