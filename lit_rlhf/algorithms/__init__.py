"""Algorithms as LightningModules; each class's fields are its settings, with its own defaults."""

from lit_rlhf.algorithms.base import Algorithm
from lit_rlhf.algorithms.online import OnlineAlgorithm
from lit_rlhf.algorithms.policy_gradient import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    RLOO,
    SAPO,
    DrGRPO,
    MaxRL,
    PolicyGradient,
    Reinforce,
    ReinforcePlusPlus,
)

__all__ = [
    "CISPO",
    "DAPO",
    "GRPO",
    "GSPO",
    "RLOO",
    "SAPO",
    "Algorithm",
    "DrGRPO",
    "MaxRL",
    "OnlineAlgorithm",
    "PolicyGradient",
    "Reinforce",
    "ReinforcePlusPlus",
]
