"""Prompts and, later, supervised and preference data: columns, chat templates, loaders and DataModules."""

from lit_rlhf.data.prompts import PromptData

__all__ = ["PromptData"]
