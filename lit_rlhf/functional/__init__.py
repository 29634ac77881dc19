"""Pure tensor maths of post-training: each formula is a function of tensors and imports nothing but torch."""

from lit_rlhf.functional.advantages import (
    Baseline,
    Reduce,
    Scale,
    baseline_advantages,
    group_stats,
    maxrl_advantages,
    returns_to_go,
    whiten,
)
from lit_rlhf.functional.aggregation import Aggregation, aggregate
from lit_rlhf.functional.kl import KLEstimator, kl_estimate
from lit_rlhf.functional.logprobs import (
    TokenScores,
    scatter_scores,
    score_hidden,
    select_predictors,
    token_logps,
)
from lit_rlhf.functional.policy_losses import (
    PolicyLoss,
    cispo_loss,
    gspo_loss,
    ppo_clip_loss,
    reinforce_loss,
    sapo_loss,
    tis_weights,
)

__all__ = [
    "Aggregation",
    "Baseline",
    "KLEstimator",
    "PolicyLoss",
    "Reduce",
    "Scale",
    "TokenScores",
    "aggregate",
    "baseline_advantages",
    "cispo_loss",
    "group_stats",
    "gspo_loss",
    "kl_estimate",
    "maxrl_advantages",
    "ppo_clip_loss",
    "reinforce_loss",
    "returns_to_go",
    "sapo_loss",
    "scatter_scores",
    "score_hidden",
    "select_predictors",
    "tis_weights",
    "token_logps",
    "whiten",
]
