"""Counting held-out prompts that are also trained on."""

from collections.abc import Hashable, Iterable


def count_shared(train: Iterable[Hashable], held_out: Iterable[Hashable]) -> int:
    """Count held-out prompts that also are training prompts, exactly.

    >>> count_shared(["a", "b"], ["b", "c", "b"])
    2
    """
    seen = set(train)
    return sum(prompt in seen for prompt in held_out)
