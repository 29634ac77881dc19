"""Whether a probability means what it says: of all answers given 0.8, eight in ten should be right."""

import torch
from torch import Tensor

from lit_rlhf.algorithms.ranks import sum_over_ranks

NUM_BINS = 10


class CalibrationMeter:
    """Collect probabilities of an event and whether it came, and compare the two in bins of equal width.

    >>> meter = CalibrationMeter()
    >>> meter.add(torch.tensor([0.9, 0.9, 0.1]), torch.tensor([True, False, False]))
    >>> round(meter.compute(), 3)  # (|0.9 - 0.5| * 2 + |0.1 - 0| * 1) / 3
    0.3
    """

    def __init__(self) -> None:
        self._bins = torch.zeros(NUM_BINS, 3, dtype=torch.float64)  # count, sum of probabilities, sum of events

    def add(self, probabilities: Tensor, events: Tensor) -> None:
        """Add N probabilities.

        Args:
            probabilities: ``[N]`` in [0, 1].
            events: ``[N]``, whether what they were given to was the case.
        """
        probabilities = probabilities.detach().double().cpu()
        places = (probabilities * NUM_BINS).long().clamp(max=NUM_BINS - 1)
        rows = torch.stack([torch.ones_like(probabilities), probabilities, events.double().cpu()], dim=1)
        self._bins.index_add_(0, places, rows)

    def add_pairs(self, gaps: Tensor) -> None:
        """Add pairs by the score of the better one minus that of the worse, each read both ways.

        Args:
            gaps: ``[N]``; σ of it is the probability that the better one is the better one.
        """
        self.add(torch.sigmoid(gaps), torch.ones_like(gaps))
        self.add(torch.sigmoid(-gaps), torch.zeros_like(gaps))

    def compute(self) -> float | None:
        """Reduce over ranks and start anew.

        Returns:
            The expected calibration error: over bins, the mean of |mean probability − share of events| weighted by
            how many fell there (Guo et al. 2017, arXiv 1706.04599, eq. 3). None where there was nothing.
        """
        bins, self._bins = sum_over_ranks(self._bins), torch.zeros_like(self._bins)
        total = float(bins[:, 0].sum())
        return float((bins[:, 1] - bins[:, 2]).abs().sum()) / total if total else None
