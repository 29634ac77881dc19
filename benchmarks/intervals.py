"""Intervals for held-out numbers: Wilson's for a share, the bootstrap over groups for anything else."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lit_rlhf_callbacks.symptoms import robust

Interval = tuple[float, float, float]  # value, lower and upper end, 95 %


def wilson(num_right: float, num: int) -> Interval:
    """Return a share with Wilson's interval, which holds for small numbers and near 0 and 1.

    >>> [round(value, 3) for value in wilson(8, 10)]
    [0.8, 0.49, 0.943]
    """
    return num_right / num, *robust.wilson(num_right, num)


def bootstrap(statistic: Callable[[Tensor], float], groups: Sequence[object], draws: int = 2000) -> Interval:
    """Return a statistic with its percentile interval over draws of whole groups: rows of a prompt are not independent.

    Args:
        statistic: Of row numbers ``[n]``, some more than once.
        groups: Which group each row belongs to.
        draws: How often to draw.
    """
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    parts = [torch.tensor(rows) for rows in members.values()]
    generator = torch.Generator().manual_seed(0)
    values = []
    for _ in range(draws):
        drawn = torch.randint(len(parts), (len(parts),), generator=generator).tolist()
        values.append(statistic(torch.cat([parts[place] for place in drawn])))
    ends = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return statistic(torch.arange(len(groups))), float(ends[0]), float(ends[1])


def auc(scores: Tensor, is_good: Tensor) -> float:
    """Return how often a good row scores above a bad one, ties half; 0.5 is chance.

    >>> auc(torch.tensor([0.9, 0.2, 0.5]), torch.tensor([True, False, False]))
    1.0
    """
    gaps = scores[is_good][:, None] - scores[~is_good][None]
    return float(0.5 * (gaps.sign() + 1).mean())


def written(interval: Interval, digits: int = 3) -> str:
    """Write a value and its interval."""
    value, low, high = interval
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
