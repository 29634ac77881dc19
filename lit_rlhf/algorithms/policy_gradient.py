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
from typing import Any, ClassVar, Literal

from torch import Tensor

from lit_rlhf.algorithms.checks import refuse_unused
from lit_rlhf.algorithms.forwards import Shown
from lit_rlhf.algorithms.known_bad import warn_of_unleashed_reward
from lit_rlhf.algorithms.online import OnlineAlgorithm
from lit_rlhf.algorithms.ranks import sum_over_ranks
from lit_rlhf.algorithms.window import Slot
from lit_rlhf.functional.advantages import (
    Baseline,
    Scale,
    baseline_advantages,
    maxrl_advantages,
    returns_to_go,
    whiten,
)
from lit_rlhf.functional.aggregation import Aggregation, aggregate
from lit_rlhf.functional.kl import KLEstimator, kl_estimate
from lit_rlhf.functional.policy_losses import (
    PolicyLoss,
    cispo_loss,
    gspo_loss,
    ppo_clip_loss,
    reinforce_loss,
    sapo_loss,
    tis_weights,
)
from lit_rlhf.rollout.experience import Experience
from lit_rlhf_callbacks.errors import UserError


@dataclass(eq=False, repr=False, kw_only=True)
class PolicyGradient(OnlineAlgorithm):
    """Policy gradients from group-compared rewards: what the family shares. Use one of the subclasses."""

    baseline: Baseline = "group_mean"
    """What a reward is compared with: its group's mean, the mean of the others in it, or nothing."""

    advantage_scale: Scale = "group"
    """What an advantage is divided by: the standard deviation of its group, of the batch, or nothing."""

    clip_low: float = 0.2
    """The ratio stops teaching below 1 - clip_low."""

    clip_high: float = 0.2
    """The ratio stops teaching above 1 + clip_high."""

    clip_dual: float | None = None
    """For negative advantages, bound the loss at clip_dual × |A| (dual-clip PPO)."""

    aggregation: Aggregation = "token_mean"
    """How token losses become one number; the counts are those of the whole window."""

    beta: float = 0.0
    """Weight of the KL to the reference. 0 suits rewards that are verified; a learned reward needs more."""

    kl_estimator: KLEstimator = "k3"
    """Which estimate of the KL: k1 unbiased, k2 = half a square, k3 unbiased and never negative."""

    kl_in: Literal["loss", "reward"] = "loss"
    """Add the KL to the loss, or subtract its sum over a completion from the reward."""

    kl_straight_through: bool = True
    """Keep the estimate's value but take k2's gradient, which is that of the exact reverse KL."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    tis_cap: float | None = None
    """Truncated importance sampling for a sampler whose numerics differ from the learner's: the weight's cap (2)."""

    unused: ClassVar[tuple[str, ...]] = ()
    """Settings of the family that mean nothing to a class."""

    def __post_init__(self) -> None:
        refuse_unused(self, self.unused)
        super().__post_init__()

    def setup(self, stage: str) -> None:
        """Warn of a learned reward that nothing holds back."""
        super().setup(stage)
        warn_of_unleashed_reward(self, self.beta)

    def needs_reference(self) -> bool:
        """Tell whether reference log-probs are used."""
        return self.beta != 0

    def needs_old_logps(self) -> bool:
        """Tell whether log-probs from before the phase's first update must be kept."""
        return super().needs_old_logps() or (self.beta != 0 and self.kl_in == "reward")

    def needs_groups(self) -> bool:
        """Tell whether the advantages compare the completions of one prompt."""
        return self.baseline != "none" or self.advantage_scale == "group"

    def step0_values(self) -> dict[str, float]:
        """Return what holds before the first update, whatever the data."""
        return {"ratio/mean": 1.0, **({"kl": 0.0} if self.needs_reference() else {})}

    def compute_advantages(self, experience: Experience) -> Tensor:
        """Compare rewards, minus the KL where it belongs to them, within groups."""
        rewards = experience.rewards
        if self.beta and self.kl_in == "reward":
            rewards = rewards - self.beta * self._token_kl(experience).sum(-1)
        return self.reward_advantages(rewards, experience.prompt_ids)[:, None]

    def reward_advantages(self, rewards: Tensor, prompt_ids: Tensor) -> Tensor:
        """Return one advantage per completion, ``[N]``."""
        return baseline_advantages(
            rewards, prompt_ids, baseline=self.baseline, scale=self.advantage_scale, reduce=sum_over_ranks
        )

    def policy_loss(self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> PolicyLoss:
        """Return the per-token loss, all ``[B, T]``."""
        return ppo_clip_loss(
            logps,
            old_logps,
            advantages,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            clip_dual=self.clip_dual,
        )

    def window_share(self, batch: Experience, slot: Slot) -> tuple[Tensor, Shown]:
        """Return the rows' policy loss plus KL minus entropy bonus, over the window's counts."""
        mask = batch.loss_mask
        logps, entropy = self.backbone.score_tokens(
            batch.input_ids,
            batch.attention_mask,
            batch.completion_mask,
            temperature=self.sampling.temperature,
            entropy_grad=self.entropy_coef != 0,
        )
        old_logps = batch.old_logps if batch.old_logps is not None else logps.detach()
        policy = self.policy_loss(logps, old_logps, batch.advantages, mask)
        values = policy.values
        if self.tis_cap is not None:
            values = values * tis_weights(old_logps, batch.sampler_logps, cap=self.tis_cap)
        shown = {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask,
            "completion_mask": batch.completion_mask,
            "logps": logps.detach(),
            "old_logps": old_logps,
            "sampler_logps": batch.sampler_logps,
            "advantages": batch.advantages,
            "rewards": batch.rewards,
            "prompt_ids": batch.prompt_ids,
            "entropy": entropy.detach(),
            "policy_loss": self._aggregate(values.detach(), mask, slot)[None],
            "low_clipped": policy.low_clipped & mask,
            "high_clipped": policy.high_clipped & mask,
        }
        if batch.ref_logps is not None:
            shown["ref_logps"] = batch.ref_logps
            kl = kl_estimate(logps, batch.ref_logps, self.kl_estimator, self.kl_straight_through)
            shown["kl"] = kl.detach()
            if self.kl_in == "loss":
                values = values + self.beta * kl
        if self.entropy_coef:
            values = values - self.entropy_coef * entropy
        return self._aggregate(values, mask, slot), shown

    def measure(self, shown: Shown) -> None:
        """Add losses, KL, entropy and clip fractions."""
        mask = shown["completion_mask"]
        self.meter.add_total("policy_loss", shown["policy_loss"].sum())
        self.meter.add_masked("entropy", shown["entropy"], mask)
        low, high = shown["low_clipped"], shown["high_clipped"]
        self.meter.add_masked("clip_ratio/low_mean", low, mask)
        self.meter.add_masked("clip_ratio/high_mean", high, mask)
        self.meter.add_masked("clip_ratio/region_mean", low | high, mask)
        if "kl" in shown:
            self.meter.add_masked("kl", shown["kl"], mask)

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        facts = super().run_facts()
        return {**facts, "stage": "rl", "beta": self.beta, "estimator": self.kl_estimator, "kl_in": self.kl_in}

    def _aggregate(self, values: Tensor, mask: Tensor, slot: Slot) -> Tensor:
        return aggregate(
            values,
            mask,
            self.aggregation,
            num_tokens=slot.num_tokens,
            num_sequences=slot.num_sequences,
            max_tokens=self.sampling.max_new_tokens,
        )

    def _token_kl(self, experience: Experience) -> Tensor:
        assert experience.old_logps is not None and experience.ref_logps is not None  # noqa: PT018
        kl = kl_estimate(experience.old_logps, experience.ref_logps, self.kl_estimator)
        return kl.masked_fill(~experience.completion_mask, 0.0)


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
