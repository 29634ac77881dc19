"""From parts to a prediction: what a run will hold at its fullest, and what to change first if that is too much."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from lit_rlhf_callbacks.memory import (
    COMPUTE_BYTES,
    ModelShape,
    Precision,
    activation_bytes,
    autocast_bytes,
    logits_bytes,
)

Parts = dict[str, int]
OWN_ALLOWANCE = 2**30  # CUDA's context and what other libraries took: no other process


class MicroBatch(NamedTuple):
    """The largest batch that one forward and backward sees."""

    num_rows: int
    length: int
    is_padded: bool


class Training(NamedTuple):
    """What the size of a micro-batch's activations depends on beside its own shape."""

    shape: ModelShape
    precision: Precision
    checkpointing: bool
    lora_rank: int
    max_logits: int | None
    """None: the model returns all logits at once."""


def static_parts(module: nn.Module, optimizers: list[Optimizer], is_ddp: bool) -> Parts:
    """Predict what is there all the time from the weights that there are, before any gradient exists.

    Args:
        module: Its trained and frozen weights, of whatever types.
        optimizers: Adam's relatives keep two numbers per weight, SGD one with momentum and none without; of others
            nothing is known.
        is_ddp: DDP copies gradients into buckets.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    size = sum(parameter.nbytes for parameter in trained)
    states = sum(
        _num_states(optimizer) * parameter.nbytes
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
    parts = {
        "weights": size,
        "frozen weights": sum(parameter.nbytes for parameter in frozen),
        "gradients": size,
        "optimiser": states,
        "DDP buckets": size if is_ddp else 0,
    }
    return {name: size for name, size in parts.items() if size}


def micro_batch_parts(training: Training, batch: MicroBatch) -> Parts:
    """Predict what a micro-batch adds: activations, logits, and under autocast the 16-bit copies of the weights."""
    shape, precision = training.shape, training.precision
    parts = {
        "activations": activation_bytes(
            shape,
            batch.num_rows,
            batch.length,
            precision,
            checkpointing=training.checkpointing,
            lora_rank=training.lora_rank,
            is_padded=batch.is_padded,
        ),
        "logits": logits_bytes(batch.num_rows * batch.length, shape.vocab_size, training.max_logits),
        "autocast": autocast_bytes(shape.num_parameters) if precision == "bf16-mixed" else 0,
    }
    return {name: size for name, size in parts.items() if size}


def as_precision(name: str, dtype: torch.dtype) -> Precision:
    """Turn Lightning's name of a precision, or a type of weights that were loaded in 16 bits, into ours."""
    if name.endswith("-mixed"):
        return "bf16-mixed"
    return "bf16-true" if torch.finfo(dtype).bits // 8 == COMPUTE_BYTES["bf16-true"] else "32-true"


def first_knob(parts: Mapping[str, int], checkpointing: bool) -> str:
    """Say what to change first if a run needs less memory: whatever shrinks its largest part.

    Example:
        >>> first_knob({"weights": 4, "gradients": 4, "optimiser": 8, "activations": 9}, checkpointing=False)
        'train adapters (LoRA) instead of all weights'
    """
    trained = sum(parts.get(name, 0) for name in ("weights", "gradients", "optimiser", "DDP buckets", "autocast"))
    sizes = {name: parts.get(name, 0) for name in ("frozen weights", "activations", "logits")} | {"trained": trained}
    largest = max(sizes, key=lambda name: sizes[name])
    if largest == "trained":
        return "train adapters (LoRA) instead of all weights"
    if largest == "frozen weights":
        return "keep no copy of the reference: adapters that are turned off for it, or its log-probs from disk"
    if largest == "logits":
        return "fewer tokens per micro-batch, with more micro-batches per update; the gradient is the same"
    smaller = "fewer rows per micro-batch, with more micro-batches per update; the gradient is the same"
    return smaller if checkpointing else f"{smaller}; then gradient checkpointing, at a third more time"


def crowding(free: int, total: int, own: int, predicted: int) -> list[str]:
    """Say who else is on a device, and whether a run will fit beside them.

    Args:
        free: Bytes free on the device, as the driver says.
        total: Bytes it has.
        own: Bytes this process has taken.
        predicted: Bytes the run will hold at its fullest.

    Returns:
        A sentence for each thing that is wrong.

    Example:
        >>> crowding(free=10 * 2**30, total=80 * 2**30, own=0, predicted=20 * 2**30)
        ['another process holds about 69 GiB of this device: one job at a time', ...]
    """
    others = total - free - own - OWN_ALLOWANCE
    said = []
    if others > OWN_ALLOWANCE:
        said.append(f"another process holds about {others / 2**30:.0f} GiB of this device: one job at a time")
    if free + own < predicted:
        said.append(f"{_size(free + own)} are free for this run, and it is predicted to need {_size(predicted)}")
    return said


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def _num_states(optimizer: Optimizer) -> int:
    name = type(optimizer).__name__
    if "Adam" in name:
        return 3 if optimizer.defaults.get("amsgrad") else 2
    return 1 if optimizer.defaults.get("momentum") else 0
