"""Where a fault began: a two-piece least-absolute fit, flat and then a step or a ramp, as an interval.

The step at which a rule fires is late by construction. On made series the fit was off by 0 rows at the median (step)
and +7 (ramp), where a sustained threshold was off by +52.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MIN_LEVEL = 3  # points that say what came before
MAX_EXACT, COARSE = 100, 4
TOLERANCE = 2.0  # log-likelihood (Laplace noise) that a breakpoint of the interval may lose against the best


def find_onset(trace: Sequence[tuple[int, float]], *, log: bool = False) -> tuple[int, int] | None:
    """Return the steps between which a metric left its first level.

    Args:
        trace: ``(step, value)`` up to the alarm, at most a few hundred points. Breakpoints are fitted all at once, on
            a matrix of breakpoints × points; in long traces every fourth one first, then those around the best.
        log: Fit the logarithm, for metrics that vary by factors.

    Returns:
        First and last plausible step, or None for a trace too short to tell.

    Example:
        >>> find_onset([(step, 1.0 if step < 30 else 4.0) for step in range(60)])
        (30, 30)
    """
    if len(trace) <= MIN_LEVEL:
        return None
    steps = torch.tensor([step for step, _ in trace], dtype=torch.float64)
    values = torch.tensor([value for _, value in trace], dtype=torch.float64)
    if log:
        values = values.clamp_min(1e-12).log()
    breaks = torch.arange(MIN_LEVEL, len(trace))  # an alarm may be raised by the first bad row
    if len(trace) > MAX_EXACT:
        first, last = _plausible(steps, values, breaks[::COARSE])
        breaks = breaks[(breaks > first - COARSE) & (breaks < last + COARSE)]
    first, last = _plausible(steps, values, breaks)
    return trace[first][0], trace[last][0]


def _plausible(steps: Tensor, values: Tensor, breaks: Tensor) -> tuple[int, int]:
    """Return the first and the last of the breakpoints that fit nearly as well as the best."""
    costs = _costs(steps, values, breaks)
    floor = float((values - values.median()).abs().mean()) * 1e-3 + 1e-12  # noise-free pieces have no likelihood
    loss = len(values) * (costs / len(values) + floor).log()
    found = breaks[loss <= loss.min() + TOLERANCE].tolist()
    return found[0], found[-1]


def _costs(steps: Tensor, values: Tensor, breaks: Tensor) -> Tensor:
    """Return, for each breakpoint, the sum of absolute residuals of the better of two shapes that part there."""
    is_left = torch.arange(len(values)) < breaks[:, None]
    level = _median(values, is_left)
    from_level = values - level
    before = (from_level.abs() * is_left).sum(1)
    step = ((values - _median(values, ~is_left)).abs() * ~is_left).sum(1)
    run = (steps - steps[breaks - 1, None]).clamp_min(1.0)
    slope = _weighted_median(from_level / run, run * ~is_left)
    ramp = ((from_level - slope * run).abs() * ~is_left).sum(1)
    return before + torch.minimum(step, ramp)


def _median(values: Tensor, mask: Tensor) -> Tensor:
    """Return the lower median of each row's chosen values, ``[breaks, 1]``."""
    ordered = values.expand(mask.shape).masked_fill(~mask, math.inf).sort(1).values
    return ordered.gather(1, (mask.sum(1, keepdim=True) - 1) // 2)


def _weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return each row's weighted median, ``[breaks, 1]``: what minimises the weighted absolute deviations."""
    ordered, order = values.masked_fill(weights == 0, math.inf).sort(1)
    reached = weights.gather(1, order).cumsum(1) >= weights.sum(1, keepdim=True) / 2
    return ordered.gather(1, reached.to(torch.uint8).argmax(1, keepdim=True))


def is_log_like(values: Sequence[float]) -> bool:
    """Tell whether a positive metric spans more than a factor of four, so that its logarithm is the scale to fit."""
    positive = bool(values) and all(math.isfinite(value) and value > 0 for value in values)
    return positive and max(values) > 4 * min(values)
