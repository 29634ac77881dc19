"""The run's one seed, and the seeds derived from it."""

import hashlib
import os

import torch


def global_seed() -> int:
    """Return the seed that `lightning.seed_everything` (``seed_everything:`` in a YAML) set, else 0."""
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))


def keyed_generator(*key: int | str) -> torch.Generator:
    """Return a CPU generator that depends on nothing but ``key``: not on rank, history, or the global state.

    >>> a, b = keyed_generator(42, "train", 0), keyed_generator(42, "train", 0)
    >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
    True
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
