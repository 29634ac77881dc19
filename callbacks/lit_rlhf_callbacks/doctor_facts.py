"""What is known of a run besides its metrics, as one flat dict by dotted name."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_rlhf_callbacks.foreign_models import find_language_model, find_tokenizer
from lit_rlhf_callbacks.protocol import offered

Facts = dict[str, Any]
UNLIMITED = 10**9  # tokenizers without a limit say 10**30


def gather_facts(trainer: Trainer, pl_module: LightningModule) -> Facts:
    """Collect what the module, its data and the trainer say; call it when training starts.

    Args:
        trainer: With its optimisers.
        pl_module: What its ``run_facts()`` says counts before what ``data_facts()`` says; its saved hyper-parameters
            stand under ``model.``.

    Returns:
        Plain JSON values.
    """
    facts: Facts = {"algorithm": type(pl_module).__name__}
    facts |= flatten({f"model.{name}": value for name, value in pl_module.hparams.items()})
    for owner, method in ((trainer.datamodule, "data_facts"), (pl_module, "run_facts")):  # type: ignore[attr-defined]
        told = offered(owner, method)
        facts |= flatten(told()) if told is not None else {}
    facts |= _trainer_facts(trainer) | _weight_facts(trainer, pl_module) | _length_facts(trainer, pl_module)
    if pl_module.device.type == "cuda":
        facts["device.memory_gib"] = torch.cuda.get_device_properties(pl_module.device).total_memory / 2**30
    return facts


def flatten(values: Mapping[str, Any], prefix: str = "") -> Facts:
    """Turn nested dicts into dotted names, and what JSON does not know into text.

    Example:
        >>> flatten({"sampling": {"top_p": 1.0}, "stop_ids": (2, 3)})
        {'sampling.top_p': 1.0, 'stop_ids': [2, 3]}
    """
    flat: Facts = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = _plain(value)
    return flat


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [flatten(item) if isinstance(item, Mapping) else _plain(item) for item in value]
    return str(value)


def _trainer_facts(trainer: Trainer) -> Facts:
    return {
        "trainer.max_steps": trainer.max_steps,
        "trainer.accumulate_grad_batches": trainer.accumulate_grad_batches,
        "trainer.precision": str(trainer.precision),
        "trainer.world_size": trainer.world_size,
        "trainer.gradient_clip_val": trainer.gradient_clip_val,
    }


def _weight_facts(trainer: Trainer, pl_module: LightningModule) -> Facts:
    trained = [p for p in pl_module.parameters() if p.requires_grad]
    facts: Facts = {"weights.num_trainable": sum(p.numel() for p in trained)}
    if trained:
        facts["weights.dtype"] = str(trained[0].dtype).removeprefix("torch.")
    if trainer.optimizers:
        optimizer = trainer.optimizers[0]
        group = optimizer.param_groups[0]
        facts["optimizer.class"] = type(optimizer).__name__
        facts["optimizer.lr"] = float(group.get("initial_lr", group["lr"]))
        facts["optimizer.weight_decay"] = float(group.get("weight_decay", 0.0))
    return facts


def _length_facts(trainer: Trainer, pl_module: LightningModule) -> Facts:
    """Return the longest sequence that the model takes, if anybody says so."""
    config = getattr(find_language_model(pl_module), "config", None)
    for length in (
        getattr(config, "max_position_embeddings", None),
        getattr(find_tokenizer(trainer, pl_module), "model_max_length", None),
    ):
        if isinstance(length, int) and length < UNLIMITED:
            return {"model_max_length": length}
    return {}
