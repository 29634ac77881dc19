"""The policy, its reference and its tokenizer: loading, scoring tokens, what goes into a checkpoint."""

from lit_rlhf.backbone.adapters import LoRA
from lit_rlhf.backbone.backbone import Backbone
from lit_rlhf.backbone.reference import Reference
from lit_rlhf.backbone.resolve import resolve_model
from lit_rlhf.backbone.weights import weight_hash

__all__ = ["Backbone", "LoRA", "Reference", "resolve_model", "weight_hash"]
