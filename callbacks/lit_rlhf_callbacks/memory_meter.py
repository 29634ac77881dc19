"""What a run really holds: bytes of its tensors, and its peak on the device or in the process."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

_STATUS = Path("/proc/self/status")


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Sum the memory of tensors, each storage once, shards only."""
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local}.values())


def static_tensors(module: nn.Module, optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """Return weights, buffers, gradients and the state of optimisers."""
    parameters = list(module.parameters())
    states: list[Any] = [value for o in optimizers for state in o.state.values() for value in state.values()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return [*parameters, *module.buffers(), *gradients, *(state for state in states if isinstance(state, Tensor))]


class Meter:
    """Bytes in use now and at most since the start.

    On CUDA these are the allocator's own numbers. Elsewhere it is the process's resident memory, looked at whenever
    `now` is called, less what it held at the start beside this module's tensors: libraries that load late, and pages
    that the allocator keeps, are in it.

    Args:
        device: Where the module trains.
        start_bytes: Of its tensors at the start.
    """

    def __init__(self, device: torch.device, start_bytes: int) -> None:
        self.device = device
        self.is_exact = device.type == "cuda"
        self._offset = 0 if self.is_exact else resident_bytes() - start_bytes
        self._peak = start_bytes
        if self.is_exact:
            torch.cuda.reset_peak_memory_stats(device)

    def now(self) -> int:
        """Return what is in use."""
        used = torch.cuda.memory_allocated(self.device) if self.is_exact else resident_bytes() - self._offset
        self._peak = max(self._peak, used)
        return used

    def peak(self) -> int:
        """Return the most there has been."""
        self.now()
        return torch.cuda.max_memory_allocated(self.device) if self.is_exact else self._peak


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM; where only its maximum can be known, that."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
