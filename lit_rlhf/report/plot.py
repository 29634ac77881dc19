"""A figure as inline SVG: lanes one above the other that share the x axis, so that joint changes stand in line."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lit_rlhf.report.numbers import Point, thin, tick_step, ticks, write
from lit_rlhf.report.text import escape

WIDTH, LEFT, TITLE, GAP, AXIS = 360, 42, 20, 8, 34  # in the units of the viewBox, about a pixel on a phone
CHARACTER = 6.6  # of a label, at most
MAX_DOTS = 30
Place = Callable[[float], float]


class Line(NamedTuple):
    """One metric of one run: label at its end, what it is, number of its colour, dash pattern, points by x."""

    label: str
    about: str
    colour: int
    dash: int
    points: list[Point]


class Band(NamedTuple):
    """Where a finding began: an interval of x, its severity, its number on the page, what it is."""

    first: float
    last: float
    severity: str
    number: int
    about: str


class Lane(NamedTuple):
    """One y axis: title, lines, bands; limits that are given are kept, and a log scale used where values allow it."""

    title: str
    lines: list[Line]
    bands: list[Band]
    low: float | None = None
    high: float | None = None
    log: bool = False


def draw(title: str, lanes: Sequence[Lane], x_title: str, max_points: int = 600) -> str:
    """Draw lanes over one x axis.

    Args:
        title: For those who do not see it.
        lanes: At least one, from above.
        x_title: With its unit.
        max_points: Of a line, at most.
    """
    labels = [line.label for lane in lanes for line in lane.lines]
    right = WIDTH - 10 - CHARACTER * max((min(len(label), 14) for label in labels), default=0)
    xs = [point.x for lane in lanes for line in lane.lines for point in line.points]
    x_low, x_high = min(xs, default=0.0), max(xs, default=1.0)
    span = (x_high - x_low) or 1.0

    def x_of(value: float) -> float:
        return LEFT + (min(max(value, x_low), x_high) - x_low) / span * (right - LEFT)

    height = 120 if len(lanes) == 1 else 78
    marks = ticks(x_low, x_high, tick_step(x_low, x_low + span, 5))
    parts, top = [], 0
    for lane in lanes:
        parts.append(_lane(lane, top + TITLE, height, right, x_of, max_points, marks))
        top += TITLE + height + GAP
    for mark in marks:
        parts.append(f'<text class="tick" x="{x_of(mark):.1f}" y="{top + 6}" text-anchor="middle">{write(mark)}</text>')
    parts.append(
        f'<text class="tick" x="{(LEFT + right) / 2:.1f}" y="{top + 21}" text-anchor="middle">{x_title}</text>'
    )
    described = escape("; ".join(line.about for lane in lanes for line in lane.lines))
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + AXIS - 6}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{described}</desc>{''.join(parts)}</svg>"
    )


def _lane(
    lane: Lane, top: float, height: float, right: float, x_of: Place, max_points: int, marks: Sequence[float]
) -> str:
    lines = [line._replace(points=thin(line.points, max_points)) for line in lane.lines]
    y_of, y_marks = _scale(lane, lines, top, height)
    bottom = top + height
    parts = [f'<text class="lane" x="2" y="{top - 6}">{escape(lane.title)}</text>']
    parts += [
        f'<line class="grid" x1="{x_of(mark):.1f}" x2="{x_of(mark):.1f}" y1="{top}" y2="{bottom}"/>' for mark in marks
    ]
    for mark in y_marks:
        y = y_of(mark)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{write(mark)}</text>')
    parts += [_band(band, x_of, top, height) for band in lane.bands]
    parts += [_line(line, x_of, y_of, bottom) for line in lines]
    return "".join(parts) + _end_labels(lines, y_of, right, top, bottom)


def _scale(lane: Lane, lines: Sequence[Line], top: float, height: float) -> tuple[Place, list[float]]:
    values = [value for line in lines for point in line.points for value in _reach(point)]
    low = min(values, default=0.0) if lane.low is None else min([lane.low, *values])
    high = max(values, default=1.0) if lane.high is None else max([lane.high, *values])
    if lane.log and low > 0 and high / low > 30:
        logs = math.log10(low), math.log10(high)
        powers = [10.0**power for power in ticks(*logs, max(tick_step(*logs, 3), 1.0))]
        return _linear(*logs, top, height, math.log10), powers
    if high - low <= 1e-9 * max(abs(high), abs(low)):  # a flat line stands in the middle, or below its upper limit
        half = abs(high) / 2 or 0.5
        low, high = (low - half, high + half) if lane.high is None else (min(low, 0.0), high)
    step = tick_step(low, high, 4 if height > 100 else 3)
    low = low if low == lane.low else math.floor(low / step + 1e-9) * step  # to the next round number on either side
    high = high if high == lane.high else math.ceil(high / step - 1e-9) * step
    marks = ticks(low, high, step)
    return _linear(low, high, top, height, float), marks


def _linear(low: float, high: float, top: float, height: float, of: Place) -> Place:
    # each term by itself: the difference of two finite numbers may overflow
    span = high / 2 - low / 2
    return lambda value: top + height - 3 - (of(value) / 2 - low / 2) / span * (height - 6)


def _reach(point: Point) -> list[float]:
    if not math.isfinite(point.y):
        return []
    return [point.y] if point.se is None else [point.y - point.se, point.y + point.se]


def _line(line: Line, x_of: Place, y_of: Place, bottom: float) -> str:
    parts: list[str] = []
    path, pen = [], "M"
    finite = [point for point in line.points if math.isfinite(point.y)]
    for point in line.points:
        x = x_of(point.x)
        if not math.isfinite(point.y):
            if pen == "gap":
                continue
            pen = "gap"
            about = f"{line.about}: {write(point.y)} from {write(point.x)} on"
            parts.append(
                f'<text class="gap" x="{x:.1f}" y="{bottom - 2}" text-anchor="middle">'
                f"×<title>{escape(about)}</title></text>"
            )
            continue
        y = y_of(point.y)
        path.append(f"{'L' if pen == 'L' else 'M'}{x:.1f},{y:.1f}")
        pen = "L"
        if point.se:
            low, high = y_of(point.y - point.se), y_of(point.y + point.se)
            parts.append(f'<line class="se" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
        if len(finite) <= MAX_DOTS:
            told = f" ± {write(point.se)}" if point.se else ""
            about = f"{line.label or line.about} {write(point.y)}{told} at {write(point.x)}".strip()
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"><title>{escape(about)}</title></circle>')
    drawn = f'<path class="dash{line.dash % 4}" d="{"".join(path)}"/>' if path else ""
    return f'<g class="c{line.colour % 7}"><title>{escape(line.about)}</title>{drawn}{"".join(parts)}</g>'


def _band(band: Band, x_of: Place, top: float, height: float) -> str:
    first, last = x_of(band.first), x_of(band.last)
    width = max(last - first, 4.0)
    return (
        f'<a href="#finding-{band.number}"><g class="band {escape(band.severity)}"><title>{escape(band.about)}</title>'
        f'<rect x="{first - (width - (last - first)) / 2:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>'
        f'<text x="{(first + last) / 2:.1f}" y="{top + 10}" text-anchor="middle">{band.number}</text></g></a>'
    )


def _end_labels(lines: Sequence[Line], y_of: Place, right: float, top: float, bottom: float) -> str:
    ends = []
    for line in lines:
        last = next((point for point in reversed(line.points) if math.isfinite(point.y)), None)
        if last is not None and line.label:
            ends.append((y_of(last.y) + 3.5, line))
    ends.sort(key=lambda end: end[0])
    heights: list[float] = []
    for y, _ in ends:
        heights.append(max(y, heights[-1] + 11 if heights else top + 4))
    over = max(heights[-1] - bottom, 0.0) if heights else 0.0
    for place in range(len(heights) - 1, -1, -1):  # push back up what was pushed out below
        limit = heights[place + 1] - 11 if place + 1 < len(heights) else heights[place] - over
        heights[place] = min(heights[place], limit)
    return "".join(
        f'<text class="end c{line.colour % 7}" x="{right + 5:.1f}" y="{y:.1f}">{escape(_short(line.label))}</text>'
        for y, (_, line) in zip(heights, ends, strict=True)
    )


def _short(label: str) -> str:
    return label if len(label) <= 14 else label[:13] + "…"
