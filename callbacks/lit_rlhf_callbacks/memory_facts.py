"""Reading off a module, and off its batches, what its memory depends on."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from lit_rlhf_callbacks.foreign_models import find_language_model
from lit_rlhf_callbacks.memory import MAX_LOGITS, read_shape
from lit_rlhf_callbacks.memory_plan import MicroBatch, Training, as_precision


def describe_training(trainer: Trainer, pl_module: LightningModule) -> Training | None:
    """Read a transformer's shape and how it is trained off a module, wherever the model sits in it."""
    own = find_language_model(pl_module)
    candidates = [own] if own is not None else list(pl_module.modules())
    trained = (m for m in candidates if any(p.requires_grad for p in m.parameters()) and _has_widths(m))
    model = next(trained, None)
    if model is None:
        return None
    parameters = list(model.parameters())
    num_trained = sum(p.numel() for p in parameters if p.requires_grad)
    ranks = [len(p) for name, p in model.named_parameters() if "lora_A" in name]
    base = max(parameters, key=lambda p: p.numel())
    return Training(
        shape=read_shape(model.config, sum(p.numel() for p in parameters), num_trained),
        precision=as_precision(str(trainer.precision), base.dtype),
        checkpointing=any(getattr(m, "gradient_checkpointing", False) for m in model.modules()),
        lora_rank=max(ranks, default=0),
        max_logits=MAX_LOGITS if own is None else None,
    )


def _has_widths(module: nn.Module) -> bool:
    config = getattr(module, "config", None)
    return all(hasattr(config, name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))


def find_micro_batch(outputs: Any, batch: Any) -> MicroBatch | None:
    """Return the shape of what was trained on, if the step's ``tokens`` or its batch show it."""
    for source in (outputs.get("tokens", {}) if isinstance(outputs, dict) else {}, batch):
        ids = source.get("input_ids") if isinstance(source, dict) else None
        if isinstance(ids, Tensor) and ids.dim() == 2:
            mask = source.get("attention_mask")
            return MicroBatch(len(ids), ids.shape[1], is_padded=isinstance(mask, Tensor) and not bool(mask.all()))
    return None
