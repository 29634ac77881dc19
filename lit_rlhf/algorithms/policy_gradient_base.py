"""What the policy-gradient family shares: advantages from groups, a per-token loss, KL, entropy and one denominator."""

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
)
from lit_rlhf.functional.aggregation import Aggregation, aggregate
from lit_rlhf.functional.kl import KLEstimator, kl_estimate
from lit_rlhf.functional.policy_losses import (
    PolicyLoss,
    ppo_clip_loss,
    tis_weights,
)
from lit_rlhf.rollout.experience import Experience


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
        logps, entropy, _ = self.backbone.score_tokens(
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
