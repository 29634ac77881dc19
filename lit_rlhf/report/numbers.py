"""Numbers on a page: how they are written, where ticks stand, which points of a long line are kept."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """One measurement: place on the x axis, value (NaN or infinite marks a gap), standard error where known."""

    x: float
    y: float
    se: float | None = None


def write(value: float) -> str:
    """Write a number with three digits.

    Example:
        >>> [write(value) for value in (0.86328, 1234.6, 4e-4, 0.0, float("nan"), 25.0)]
        ['0.863', '1,235', '4e-4', '0', 'NaN', '25']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        return "0"
    if 1000 <= size < 1e6:
        text = f"{value:,.0f}"
    elif size >= 1e6 or size < 1e-3:
        digits, _, power = f"{value:.2e}".partition("e")
        text = f"{float(digits):g}e{int(power)}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−", 1) if value < 0 else text


def tick_step(low: float, high: float, num: int) -> float:
    """Return the round distance of about ``num`` ticks between ``low`` and ``high``, which differ.

    Example:
        >>> tick_step(0.23, 1.0, 3)
        0.5
    """
    rough = high / max(num - 1, 1) - low / max(num - 1, 1)  # the difference itself may overflow
    base = 10.0 ** math.floor(math.log10(rough))
    return next(factor * base for factor in (1, 2, 5, 10) if factor * base >= rough * 0.999)


def ticks(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of ``step`` within ``[low, high]``.

    Example:
        >>> ticks(0, 60, 20)
        [0.0, 20.0, 40.0, 60.0]
    """
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """Keep at most ``limit`` points, among them the ends and every bucket's extremes and first gap.

    Example:
        >>> spike = [Point(x, 9.0 if x == 777 else 1.0) for x in range(10_000)]
        >>> kept = thin(spike, 600)
        >>> len(kept) <= 600, max(point.y for point in kept), kept[0].x, kept[-1].x
        (True, 9.0, 0, 9999)
    """
    if len(points) <= limit:
        return list(points)
    num_buckets = max((limit - 2) // 3, 1)
    kept = {0, len(points) - 1}
    for bucket in range(num_buckets):
        places = range(bucket * len(points) // num_buckets, (bucket + 1) * len(points) // num_buckets)
        finite = [place for place in places if math.isfinite(points[place].y)]
        if finite:
            kept.add(min(finite, key=lambda place: points[place].y))
            kept.add(max(finite, key=lambda place: points[place].y))
        kept.update([place for place in places if not math.isfinite(points[place].y)][:1])
    return [points[place] for place in sorted(kept)]


def evenly(num: int, limit: int) -> list[int]:
    """Return at most ``limit`` of ``num`` places, evenly spaced, the ends among them.

    Example:
        >>> evenly(10, 4)
        [0, 3, 6, 9]
    """
    if num <= limit:
        return list(range(num))
    return sorted({round(place * (num - 1) / (limit - 1)) for place in range(limit)})
