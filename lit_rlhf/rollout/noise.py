"""The randomness of a completion, as a pure function of which completion it is."""

import hashlib

import torch
from torch import Tensor


def uniforms(seed: int, purpose: str, phase: int, round: int, prompt_id: int, sample: int, num: int) -> Tensor:
    """Return the uniform numbers one completion draws its tokens with, the first for its first token.

    The key is hashed and the hash stretched (SHAKE-128), so a completion's numbers depend on no batch mate, rank,
    device, resume or library version, and asking for more of them leaves the first ones as they were. A
    ``torch.Generator`` would not do: its Mersenne twister looks at 32 bits of the seed only.

    Args:
        seed: The run's seed.
        purpose: ``train``, ``eval`` or ``panel``.
        phase: Number of the experience in the run.
        round: Number of the refill by dynamic sampling.
        prompt_id: The prompt's row number in the prompt set.
        sample: The completion's number in its group.
        num: How many numbers.

    Returns:
        ``[num]`` float64 in [0, 1), on the CPU.

    >>> uniforms(0, "train", 0, 0, prompt_id=7, sample=1, num=3)
    tensor([0.5626, 0.4093, 0.0678], dtype=torch.float64)
    """
    key = repr((seed, purpose, phase, round, prompt_id, sample)).encode()
    stream = bytearray(hashlib.shake_128(key).digest(8 * num))
    integers = torch.frombuffer(stream, dtype=torch.int64) if num else torch.empty(0, dtype=torch.int64)
    return (integers & (2**53 - 1)).double() * 2.0**-53
