"""The frozen yardstick: a copy of the start policy (or the policy itself with its adapters off)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn
from transformers import PreTrainedModel

Reference = Literal["none", "copy", "adapter_off"]


def frozen_copy(policy: PreTrainedModel) -> PreTrainedModel:
    """Deep-copy a policy into a reference: eval mode, no gradients.

    Args:
        policy: The start policy, as loaded and before anything changed it.
    """
    reference = copy.deepcopy(policy)
    reference.requires_grad_(False)
    reference.eval()
    return reference


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put every submodule in eval mode, and give each its own flag back afterwards."""
    training = [submodule for submodule in module.modules() if submodule.training]
    for submodule in training:
        submodule.training = False
    try:
        yield
    finally:
        for submodule in training:
            submodule.training = True
