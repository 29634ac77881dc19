"""Sums over data-parallel ranks; with one process each is the identity."""

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")


def world_size() -> int:
    """Return how many processes share the work."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the elementwise sum over ranks, on every rank."""
    return _reduce(values, dist.ReduceOp.SUM)


def max_over_ranks(values: Tensor) -> Tensor:
    """Return the elementwise maximum over ranks, on every rank."""
    return _reduce(values, dist.ReduceOp.MAX)


def gather_over_ranks(item: Item) -> list[Item]:
    """Return every rank's plain object, in rank order, on every rank."""
    if world_size() == 1:
        return [item]
    items: list[Item] = [item] * world_size()
    dist.all_gather_object(items, item)
    return items


def _reduce(values: Tensor, operation: "dist.ReduceOp.RedOpType") -> Tensor:
    if world_size() == 1:
        return values
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    moved = values.detach().clone().to(device)
    dist.all_reduce(moved, op=operation)
    return moved.to(values.device)
