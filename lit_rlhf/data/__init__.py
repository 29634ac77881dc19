"""Prompts, supervised and preference data: columns, chat templates, masks, loaders and DataModules."""

from lit_rlhf.data.preference import PreferenceData
from lit_rlhf.data.prompts import PromptData
from lit_rlhf.data.stepwise import StepwiseData
from lit_rlhf.data.supervised import SupervisedData

__all__ = ["PreferenceData", "PromptData", "StepwiseData", "SupervisedData"]
