"""The names that a mistyped one may have meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def meant(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...?`` for the closest known names, or nothing when none is close.

    >>> meant("group_sise", ["group_size", "beta"])
    'did you mean group_size?'
    >>> meant("GPRO", ["GRPO", "GSPO", "RLOO"])
    'did you mean GRPO?'
    >>> meant("x", ["group_size"])
    ''
    """
    ranked = sorted(((_closeness(name, other), other) for other in set(known)), reverse=True)
    return f"did you mean {ranked[0][1]}?" if ranked and ranked[0][0] > 0.6 else ""


def _closeness(name: str, other: str) -> float:
    """Take letters in the wrong order for closer than other letters."""
    same_letters = sorted(name.lower()) == sorted(other.lower())
    return max(SequenceMatcher(None, name.lower(), other.lower()).ratio(), 0.9 * same_letters)
