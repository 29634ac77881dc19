"""Which weights these are: a fast content hash, the same on every device."""

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_CHUNK = 2**18  # fits a processor's cache: 2**22 is nine times slower on a CPU
_WRAP = 2**64
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def weight_hash(module: nn.Module) -> str:
    """Hash the names, shapes, types and values of a module's weights (everything in its ``state_dict``).

    On sharded weights every rank must call it.

    Args:
        module: Any module.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.ones_(layer.weight)
        >>> weight_hash(layer)
        'b4c3e050c0445bc7'
    """
    return hash_tensors(module.state_dict())


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Hash named tensors; see :func:`weight_hash`.

    Values enter as two integer sums over the raw bits, one plain and one weighted by position, so that the hash runs
    where the weights lie (3 GB per second on one CPU core) and, being integer, is the same on every device. Any single
    changed element and any two swapped elements change it.
    """
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        plain, weighted = _bit_sums(whole)
        digest.update(f"{name} {tuple(whole.shape)} {whole.dtype} {plain} {weighted}\n".encode())
    return digest.hexdigest()[:16]


def chain_hash(hashes: Sequence[str]) -> str:
    """Hash of a model made by merging adapters: of what went in, since a merge rounds differently on each device."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


def _bit_sums(tensor: Tensor) -> tuple[int, int]:
    """Sum the bits of the elements, plain and times the element's position (from 1), both modulo 2^64."""
    flat = tensor.detach().contiguous().view(-1)
    bits = flat.view(_BITS[flat.element_size()])
    positions = torch.arange(1, min(len(bits), _CHUNK) + 1, device=bits.device)
    plain, weighted = torch.zeros(2, dtype=torch.int64, device=bits.device)
    for start in range(0, len(bits), _CHUNK):
        chunk = bits[start : start + _CHUNK].to(torch.int64)
        total = chunk.sum()
        plain += total
        weighted += start * total + (chunk * positions[: len(chunk)]).sum()
    return int(plain) % _WRAP, int(weighted) % _WRAP
