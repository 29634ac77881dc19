"""Whether an update reached the weights: small steps vanish in 16 bits, and nothing else shows it."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

MAX_ELEMENTS = 2**20  # compared: 4 MiB in fp32, whatever the model


class WeightSample(NamedTuple):
    """Some trained weights before an update, and which of them have a gradient that should move them."""

    parameters: list[Tensor]
    before: list[Tensor]
    pushed: list[Tensor]


class Change(NamedTuple):
    """What an update did to a sample of the weights."""

    num_pushed: int
    """Weights with a gradient."""
    num_changed: int
    """Of these, how many changed."""
    relative_norm: float
    """Norm of the change over norm of the weights."""
    is_coarse: bool = False
    """Every weight that changed has a value that bf16 can hold: it is rounded to bf16, whatever its type."""
    finest: float = 0.0
    """A step below which a weight of typical size does not change in its type."""


def check_trainable(parameters: Iterable[nn.Parameter], *, step: int = 0) -> CheckResult:
    """Check that there is something to train."""
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in parameters]
    total, trained = sum(n for n, _ in counts), sum(n for n, requires_grad in counts if requires_grad)
    if not trained:
        text = f"none of {total} weights requires a gradient"
        return failed("trainable", step, "no_update", "nothing_trainable", text, {"total": total})
    return passed("trainable", step, f"{trained} of {total} weights are trained", {"total": total, "trained": trained})


def sample_weights(parameters: Iterable[nn.Parameter]) -> WeightSample:
    """Copy every k-th trained weight, and note which have a gradient; call it between backward and step.

    Args:
        parameters: Those of the optimiser. Sharded ones are looked at shard by shard.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    stride = max(1, -(-sum(_local(p).numel() for p in trained) // MAX_ELEMENTS))
    views, pushed, kept = [], [], []
    for parameter in trained:
        if parameter.grad is not None:
            kept.append(_local(parameter).detach().view(-1)[::stride])
            views.append(kept[-1].clone())
            pushed.append(_local(parameter.grad).detach().reshape(-1)[::stride] != 0)
    return WeightSample(kept, views, pushed)


def measure_change(sample: WeightSample) -> Change:
    """Compare with the weights now, after the update."""
    pushed = changed = elements = 0
    step = norm = size = 0.0
    is_coarse = True
    for now, before, mask in zip(*sample, strict=True):
        pushed += int(mask.sum())
        moved = now[(now != before) & mask]
        changed += len(moved)
        is_coarse = is_coarse and bool((moved.bfloat16().to(moved.dtype) == moved).all())
        size += float(before.float().abs().sum()) * torch.finfo(before.dtype).eps
        elements += before.numel()
        step += float((now.float() - before.float()).square().sum())
        norm += float(before.float().square().sum())
    relative = (step / norm) ** 0.5 if norm else 0.0
    return Change(pushed, changed, relative, is_coarse and changed > 0, size / elements if elements else 0.0)


def check_update(
    change: Change,
    *,
    lr: float,
    dtype: torch.dtype = torch.float32,
    is_scaled: bool = False,
    has_signal: bool | None = None,
    step: int = 0,
) -> CheckResult:
    """Check that the weights with a gradient have changed.

    Args:
        change: Of `measure_change`.
        lr: The learning rate of the update.
        dtype: Of the weights.
        is_scaled: A loss scaler is at work (16-mixed), which skips updates.
        has_signal: Whether the loss had something to teach (not all advantages zero, ratios clipped); None: not known.
        step: Updates made.
    """
    name = "update_reaches_weights"
    if lr == 0:
        return unknown(name, step, "the learning rate is zero at this update")
    if not change.num_pushed:
        if has_signal is False:
            return unknown(name, step, "nothing in this window teaches: all advantages are zero, or all ratios clipped")
        return failed(
            name, step, "no_update", "zero_gradient", "no weight has a gradient, although the loss should teach"
        )
    share = change.num_changed / change.num_pushed
    numbers = {"share_changed": share, "relative_norm": change.relative_norm, "lr": lr}
    text = f"{share:.1%} of the weights with a gradient changed, by {change.relative_norm:.1e} of their norm"
    if share == 0 and is_scaled:
        return unknown(name, step, "the loss scaler skipped this update")
    if share >= 0.5:
        return passed(name, step, text, numbers)
    if share == 0 and change.finest and lr > 1000 * change.finest:
        why = f"a learning rate of {lr:g} would move them, so the optimiser steps on other tensors than the model's"
        return failed(name, step, "no_update", "nothing_trainable", f"{text}: {why}", numbers)
    small = torch.finfo(dtype).bits < 32 or change.is_coarse
    cause = "bf16_weights" if small else "learning_rate_too_low"
    held_in = "bfloat16" if change.is_coarse else str(dtype).removeprefix("torch.")
    why = f"steps of lr {lr:g} are below what {held_in} weights can hold"
    severity = "critical" if share < 0.05 else "warn"
    return failed(name, step, "updates_swallowed", cause, f"only {text}: {why}", numbers, severity)  # type: ignore[arg-type]


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
