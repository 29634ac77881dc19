"""How much of the weights an update changes: small steps on 16-bit weights vanish, and nothing else shows it."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lit_rlhf_callbacks.policy_metrics import Sums

MAX_ELEMENTS = 2**24


class WeightChange:
    """Compare the trained weights before and after an update.

    Of models with more than ``MAX_ELEMENTS`` trained weights every k-th one is kept, so the copy stays below 64 MiB
    (in fp32) whatever the model. Sharded weights are compared shard by shard.

    Args:
        module: Whose parameters with ``requires_grad`` are watched.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.stride = max(1, -(-sum(_local(p).numel() for p in self.parameters) // MAX_ELEMENTS))
        self._before: list[Tensor] = []

    def remember(self) -> None:
        """Copy the weights, before an update."""
        self._before = [view.clone() for view in self._views()]

    @property
    def remembers(self) -> bool:
        """Whether there is something to compare with."""
        return bool(self._before)

    def measure(self) -> Sums:
        """Return the changed count and the squared relative norm, as sums, after the update."""
        before, self._before = self._before, []
        changed, elements, step, norm = (torch.zeros((), dtype=torch.float64) for _ in range(4))
        for old, new in zip(before, self._views(), strict=True):
            changed += (old != new).sum().cpu()
            elements += old.numel()
            step += (new.float() - old.float()).square().sum().cpu()
            norm += old.float().square().sum().cpu()
        return {"update/share_changed": (changed, elements), "update/relative_norm": (step, norm)}

    def _views(self) -> list[Tensor]:
        return [_local(parameter).detach().flatten()[:: self.stride] for parameter in self.parameters]


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
