"""Algorithms as LightningModules; each class's fields are its settings, with its own defaults."""

from lit_rlhf.algorithms.base import Algorithm
from lit_rlhf.algorithms.kto import KTO
from lit_rlhf.algorithms.offline import OfflineAlgorithm
from lit_rlhf.algorithms.online import OnlineAlgorithm
from lit_rlhf.algorithms.pairs import Preference
from lit_rlhf.algorithms.policy_gradient import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    RLOO,
    SAPO,
    DrGRPO,
    MaxRL,
    Reinforce,
    ReinforcePlusPlus,
)
from lit_rlhf.algorithms.policy_gradient_base import PolicyGradient
from lit_rlhf.algorithms.preference import (
    CDPO,
    CPO,
    DPO,
    IPO,
    ORPO,
    APODown,
    APOZero,
    DPONorm,
    Hinge,
    RobustDPO,
    SimPO,
)
from lit_rlhf.algorithms.reward_model import BradleyTerry, OutcomeReward, PlackettLuce, ProcessReward, RewardModel
from lit_rlhf.algorithms.sft import SFT

__all__ = [
    "CDPO",
    "CISPO",
    "CPO",
    "DAPO",
    "DPO",
    "GRPO",
    "GSPO",
    "IPO",
    "KTO",
    "ORPO",
    "RLOO",
    "SAPO",
    "SFT",
    "APODown",
    "APOZero",
    "Algorithm",
    "BradleyTerry",
    "DPONorm",
    "DrGRPO",
    "Hinge",
    "MaxRL",
    "OfflineAlgorithm",
    "OnlineAlgorithm",
    "OutcomeReward",
    "PlackettLuce",
    "PolicyGradient",
    "Preference",
    "ProcessReward",
    "Reinforce",
    "ReinforcePlusPlus",
    "RewardModel",
    "RobustDPO",
    "SimPO",
]
