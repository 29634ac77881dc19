"""What multiple-choice results say, and how sure a change is when the same items are asked again."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """The same items, before and now.

    Attributes:
        change: Accuracy now minus before.
        sigma: The change in standard errors.
        num_lost: Items that were right and are wrong.
        num_gained: Items that were wrong and are right.
    """

    change: float
    sigma: float
    num_lost: int
    num_gained: int


def accuracy_and_se(correct: Sequence[bool]) -> tuple[float, float]:
    """Return the share of right answers and its binomial standard error, √(p (1 − p) / n).

    Example:
        >>> accuracy_and_se([True, True, True, False])
        (0.75, 0.21650635094610965)
    """
    rate = sum(correct) / len(correct)
    return rate, math.sqrt(rate * (1 - rate) / len(correct))


def paired_change(before: Sequence[bool], now: Sequence[bool]) -> Change:
    """Compare two results on the same items.

    Items that did not change say nothing about the difference, so its standard error under "nothing has changed" comes
    from those that did: √(lost + gained) / n, and σ = (gained − lost) / √(lost + gained), the signed root of McNemar's
    statistic (Psychometrika 12, 1947). It cannot exceed √n: of a set of 20 items, −4.5 σ is the worst there is.

    Args:
        before: Which items were right.
        now: Which are, in the same order.

    Returns:
        The change; 0 σ where every item is as it was.

    Example:
        >>> paired_change([True] * 10, [False] * 4 + [True] * 6)
        Change(change=-0.4, sigma=-2.0, num_lost=4, num_gained=0)
    """
    num_lost = sum(old and not new for old, new in zip(before, now, strict=True))
    num_gained = sum(new and not old for old, new in zip(before, now, strict=True))
    difference = num_gained - num_lost
    sigma = difference / math.sqrt(num_lost + num_gained) if difference else 0.0
    return Change(difference / len(now), sigma, num_lost, num_gained)
