"""Combinations of settings that run without an error and train badly: said in one line, with what to set instead."""

from typing import TYPE_CHECKING

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

if TYPE_CHECKING:
    from lit_rlhf.algorithms.online import OnlineAlgorithm
    from lit_rlhf.algorithms.pairs import Preference

SMALL_RATE = 1e-5  # below it, AdamW's steps are finer than bf16's spacing at the usual size of weights
SUM_SCALE_BETA = 0.5  # a β meant for log-probs summed over completions


def warn_of_swallowed_updates(trainer: Trainer) -> None:
    """Warn where bf16 weights would swallow most of an update.

    Args:
        trainer: With its optimisers.
    """
    rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
    if trainer.precision == "bf16-true" and rates and max(rates) < SMALL_RATE:
        rank_zero_warn(
            f"trainer.precision: bf16-true rounds away most of an update at learning rate {max(rates):g}; set "
            "bf16-mixed, which keeps fp32 weights (watch update/share_changed)"
        )


def warn_of_sum_scale_beta(module: "Preference", usual: float) -> None:
    """Warn where a β for sums of log-probs meets means of them.

    Args:
        module: A loss on means over tokens.
        usual: What to set instead.
    """
    if module.logps_over == "mean" and module.beta < SUM_SCALE_BETA:
        rank_zero_warn(
            f"model.beta: {module.beta:g} is a scale for log-probs summed over a completion, but "
            f"{type(module).__name__} here compares means over tokens, where it hardly counts; set about {usual:g}"
        )


def warn_of_unleashed_reward(module: "OnlineAlgorithm", beta: float) -> None:
    """Warn where nothing holds the policy while it is rewarded by a model.

    Args:
        module: With its reward functions.
        beta: Weight of the KL to the reference.
    """
    learned = [name for name in module.reward_set.names if name.startswith("reward_model")]
    if learned and beta == 0:
        rank_zero_warn(
            f"model.beta: 0 suits rewards that are verified, but {learned[0]} is learned and will be exploited; set "
            "0.01 to 0.1"
        )
