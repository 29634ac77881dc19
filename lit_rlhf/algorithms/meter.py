"""Means over a window, never the last micro-batch: sums are collected, reduced once and divided at the end."""

import torch
from torch import Tensor

from lit_rlhf.algorithms.ranks import gather_over_ranks, max_over_ranks, sum_over_ranks


class WindowMeter:
    """Collect a window's metrics from its micro-batches.

    Every metric keeps its own denominator. All sums and all maxima travel in one reduction each; a rank that had
    nothing to add to a metric takes part with nothing.
    """

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}  # value, count
        self._totals: dict[str, float] = {}
        self._maxima: dict[str, float] = {}
        self._minima: dict[str, float] = {}  # negated, so that one reduction finds both

    def add_mean(self, name: str, value: Tensor | float, count: Tensor | float) -> None:
        """Add to a mean: ``value`` is the sum of ``count`` terms."""
        entry = self._sums.setdefault(name, [0.0, 0.0])
        entry[0] += float(value)
        entry[1] += float(count)

    def add_masked(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Add the masked elements of ``values`` to a mean over all such elements."""
        self.add_mean(name, values.detach().double()[mask].sum(), mask.sum())

    def add_total(self, name: str, value: Tensor | float) -> None:
        """Add to a plain sum over micro-batches and ranks."""
        self._totals[name] = self._totals.get(name, 0.0) + float(value)

    def add_max(self, name: str, values: Tensor | float) -> None:
        """Add candidates for a maximum, possibly none."""
        self._maxima[name] = max(_largest(values), self._maxima.get(name, float("-inf")))

    def add_min(self, name: str, values: Tensor | float) -> None:
        """Add candidates for a minimum, possibly none."""
        self._minima[name] = max(_largest(-values), self._minima.get(name, float("-inf")))

    def compute(self) -> dict[str, float]:
        """Reduce over ranks, divide, and start anew. A mean or extreme of nothing is left out."""
        means, totals, maxima, minima = self._names()
        sums = [self._sums.get(name, [0.0, 0.0]) for name in means]
        sums += [[self._totals.get(name, 0.0), 0.0] for name in totals]
        reduced = sum_over_ranks(torch.tensor(sums, dtype=torch.float64).reshape(-1, 2)).tolist()
        candidates = [self._maxima.get(name, float("-inf")) for name in maxima]
        candidates += [self._minima.get(name, float("-inf")) for name in minima]
        largest = max_over_ranks(torch.tensor(candidates, dtype=torch.float64)).tolist()
        self._sums, self._totals, self._maxima, self._minima = {}, {}, {}, {}
        metrics = {name: value / count for name, (value, count) in zip(means, reduced, strict=False) if count}
        metrics |= {name: value for name, (value, _) in zip(totals, reduced[len(means) :], strict=True)}
        found = [(name, value) for name, value in zip(maxima, largest, strict=False) if value > float("-inf")]
        negated = zip(minima, largest[len(maxima) :], strict=True)
        return metrics | dict(found) | {name: -value for name, value in negated if value > float("-inf")}

    def _names(self) -> list[list[str]]:
        """Return the names that any rank added to, in the same order on every rank."""
        kinds = (self._sums, self._totals, self._maxima, self._minima)
        everywhere = gather_over_ranks([list(kind) for kind in kinds])
        return [
            list(dict.fromkeys(name for names in ranks for name in names)) for ranks in zip(*everywhere, strict=True)
        ]


def _largest(values: Tensor | float) -> float:
    values = torch.as_tensor(values, dtype=torch.float64)
    return float(values.max()) if values.numel() else float("-inf")
