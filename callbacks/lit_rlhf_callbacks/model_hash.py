"""Which weights made a sample: a content hash of the trained weights, fast enough for every panel."""

import hashlib

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 2**24


def trained_weights_hash(module: nn.Module) -> str:
    """Hash the parameters that require gradients, by name, shape and value.

    Values enter as integer sums over their raw bits, plain and weighted by position, so the hash runs at memory speed
    on any device. On sharded weights every rank must call it.

    Args:
        module: Any module.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> before = trained_weights_hash(layer)
        >>> _ = layer.weight.data.add_(1)
        >>> before == trained_weights_hash(layer)
        False
    """
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            digest.update(f"{name} {tuple(whole.shape)} {_bit_sums(whole.detach())}\n".encode())
    return digest.hexdigest()[:16]


def _bit_sums(tensor: Tensor) -> tuple[int, int]:
    bits = tensor.contiguous().view(-1).view(_BITS[tensor.element_size()])
    plain = weighted = 0
    for number, chunk in enumerate(bits.split(_CHUNK)):
        values = chunk.to(torch.int64)
        positions = torch.arange(1, len(values) + 1, device=values.device)
        plain += int(values.sum())
        weighted += (number + 1) * int((values * positions).sum())
    return plain, weighted
