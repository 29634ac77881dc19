"""Post-training of language models on PyTorch Lightning.

The names below are imported when first used, so that ``import lit_rlhf`` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_rlhf.algorithms import CDPO as CDPO
    from lit_rlhf.algorithms import CISPO as CISPO
    from lit_rlhf.algorithms import CPO as CPO
    from lit_rlhf.algorithms import DAPO as DAPO
    from lit_rlhf.algorithms import DPO as DPO
    from lit_rlhf.algorithms import GRPO as GRPO
    from lit_rlhf.algorithms import GSPO as GSPO
    from lit_rlhf.algorithms import IPO as IPO
    from lit_rlhf.algorithms import KTO as KTO
    from lit_rlhf.algorithms import ORPO as ORPO
    from lit_rlhf.algorithms import RLOO as RLOO
    from lit_rlhf.algorithms import SAPO as SAPO
    from lit_rlhf.algorithms import SFT as SFT
    from lit_rlhf.algorithms import Algorithm as Algorithm
    from lit_rlhf.algorithms import APODown as APODown
    from lit_rlhf.algorithms import APOZero as APOZero
    from lit_rlhf.algorithms import BradleyTerry as BradleyTerry
    from lit_rlhf.algorithms import DPONorm as DPONorm
    from lit_rlhf.algorithms import DrGRPO as DrGRPO
    from lit_rlhf.algorithms import Hinge as Hinge
    from lit_rlhf.algorithms import MaxRL as MaxRL
    from lit_rlhf.algorithms import OfflineAlgorithm as OfflineAlgorithm
    from lit_rlhf.algorithms import OutcomeReward as OutcomeReward
    from lit_rlhf.algorithms import PlackettLuce as PlackettLuce
    from lit_rlhf.algorithms import PolicyGradient as PolicyGradient
    from lit_rlhf.algorithms import Preference as Preference
    from lit_rlhf.algorithms import ProcessReward as ProcessReward
    from lit_rlhf.algorithms import Reinforce as Reinforce
    from lit_rlhf.algorithms import ReinforcePlusPlus as ReinforcePlusPlus
    from lit_rlhf.algorithms import RewardModel as RewardModel
    from lit_rlhf.algorithms import RobustDPO as RobustDPO
    from lit_rlhf.algorithms import SimPO as SimPO
    from lit_rlhf.backbone import Backbone as Backbone
    from lit_rlhf.backbone import LoRA as LoRA
    from lit_rlhf.data import PreferenceData as PreferenceData
    from lit_rlhf.data import PromptData as PromptData
    from lit_rlhf.data import StepwiseData as StepwiseData
    from lit_rlhf.data import SupervisedData as SupervisedData
    from lit_rlhf.rewards import RewardSet as RewardSet
    from lit_rlhf.rollout import NativeSampler as NativeSampler
    from lit_rlhf.rollout import Sampling as Sampling

__version__ = "0.1.0"

_ALGORITHMS = (
    "SFT",
    "DPO",
    "CDPO",
    "RobustDPO",
    "DPONorm",
    "IPO",
    "Hinge",
    "SimPO",
    "CPO",
    "ORPO",
    "APOZero",
    "BradleyTerry",
    "APODown",
    "Preference",
    "ProcessReward",
    "OfflineAlgorithm",
    "OutcomeReward",
    "PlackettLuce",
    "KTO",
    "CISPO",
    "DAPO",
    "GRPO",
    "GSPO",
    "RLOO",
    "SAPO",
    "Algorithm",
    "DrGRPO",
    "MaxRL",
    "PolicyGradient",
    "Reinforce",
    "ReinforcePlusPlus",
    "RewardModel",
)
_HOMES = {
    **dict.fromkeys(_ALGORITHMS, "algorithms"),
    **dict.fromkeys(("Backbone", "LoRA"), "backbone"),
    **dict.fromkeys(("PreferenceData", "PromptData", "StepwiseData", "SupervisedData"), "data"),
    "RewardSet": "rewards",
    **dict.fromkeys(("NativeSampler", "Sampling"), "rollout"),
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
