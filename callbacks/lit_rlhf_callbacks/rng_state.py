"""The random state of one process, in plain types that a ``weights_only`` checkpoint can hold."""

import random
import sys
from typing import Any

import torch


def get_rng_state(device: torch.device) -> dict[str, Any]:
    """Read the states of Python, torch, this process's CUDA device, and NumPy if anybody imported it.

    Args:
        device: What this process computes on.

    Returns:
        Nested tuples, lists, numbers and tensors.
    """
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = [name, keys.tolist(), *rest]
    return state


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what `get_rng_state` read; what was not read stays as it is."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
    if "numpy" in state:
        import numpy

        numpy.random.set_state(tuple(state["numpy"]))
