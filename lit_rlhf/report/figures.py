"""The figures of a set of runs, over updates and over hours."""

from collections.abc import Iterable, Sequence

from lit_rlhf.report.findings import Told
from lit_rlhf.report.known_figures import FIGURES, Axis, Figure, metrics_of
from lit_rlhf.report.numbers import Point, evenly, write
from lit_rlhf.report.plot import Band, Lane, Line, draw
from lit_rlhf.report.read import Run
from lit_rlhf.report.text import escape, table
from lit_rlhf_callbacks.metric_table import describe, in_table_order

NUM_ROWS = 12


_NO_FIGURE = {"global_step", "hours", "device_hours"}


def figures_section(runs: Sequence[Run], roots: Sequence[Told]) -> str:
    """Draw the known figures of what exists, and everything else that was logged behind a fold."""
    told = [each for root in roots for each in root.with_consequences()]
    known = {name for figure in FIGURES for name in metrics_of(figure)}
    logged = {name for run in runs for name in run.columns if not name.endswith("_se")}
    shown = known & logged
    drawn = [figure_of(runs, figure, [each for each in told if _is_in(each, figure, shown)]) for figure in FIGURES]
    parts = [f'<div class="figures">{"".join(drawn)}</div>']
    others = [
        Figure(name, (Axis(name + _unit(name), ((name, ""),)),))
        for name in in_table_order(logged - known - _NO_FIGURE)
        if not name.startswith("sentinel/")
    ]
    if others:
        rest = "".join(figure_of(runs, figure, [], max_points=200) for figure in others)
        parts.append(
            f"<details><summary>Everything else that was logged ({len(others)})</summary>"
            f'<div class="figures">{rest}</div></details>'
        )
    return "".join(parts)


def figure_of(runs: Sequence[Run], figure: Figure, told: Sequence[Told], max_points: int = 600) -> str:
    """Draw one figure, with a table for who does not see it; nothing if no run has any of it."""
    points = {
        (run.name, name): [Point(step, value, se) for step, value, se in _values(run, name)]
        for axis in figure.axes
        for name, _ in axis.metrics
        for run in runs
        if name in run.columns
    }
    return figure_from(runs, figure, points, told, max_points)


def figure_from(
    runs: Sequence[Run],
    figure: Figure,
    points: dict[tuple[str, str], list[Point]],
    told: Sequence[Told] = (),
    max_points: int = 600,
) -> str:
    """Draw a figure of points by (name of the run, metric), x being updates."""
    if not points:
        return ""
    axes = [axis for axis in figure.axes if any(name == metric for metric, _ in axis.metrics for _, name in points)]
    by_step = [_lane(runs, axis, points, told) for axis in axes]
    parts = [f'<div class="by-step">{draw(figure.title, by_step, "updates", max_points)}</div>']
    if all(run.columns.get("hours") for run in runs if any(name == run.name for name, _ in points)):
        scale, unit = time_unit(runs)
        by_time = [_lane(runs, axis, points, told, scale) for axis in axes]
        parts.append(f'<div class="by-hours">{draw(figure.title, by_time, f"{unit} of training", max_points)}</div>')
    else:
        parts.append('<p class="by-hours quiet">A run here has no <code>hours</code>.</p>')
    fold = f"<details><summary>Numbers</summary>{_numbers(by_step)}</details>"
    return f"<figure><figcaption>{escape(figure.title)}</figcaption>{''.join(parts)}{fold}</figure>"


def time_unit(runs: Sequence[Run]) -> tuple[float, str]:
    """Return what to multiply hours by, and the unit: minutes while all runs are shorter than an hour."""
    longest = max((value for run in runs for _, value in run.columns.get("hours", [])), default=0.0)
    return (1.0, "hours") if longest >= 1 else (60.0, "minutes")


def letter(number: int) -> str:
    """Return the short name of a run in figures."""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


def _lane(
    runs: Sequence[Run],
    axis: Axis,
    points: dict[tuple[str, str], list[Point]],
    told: Sequence[Told],
    scale: float | None = None,
) -> Lane:
    lines = []
    here = [(metric, label) for metric, label in axis.metrics if any(metric == name for _, name in points)]
    for number, run in enumerate(runs):
        for place, (metric, label) in enumerate(here):
            if (run.name, metric) not in points:
                continue
            found = points[run.name, metric]
            if scale is not None:
                found = [point._replace(x=(run.hours_at(point.x) or 0.0) * scale) for point in found]
            several = len(here) > 1
            name = (label if several else "") if len(runs) == 1 else f"{letter(number)} {label if several else ''}"
            about = metric if len(runs) == 1 else f"{run.name}: {metric}"
            colour, dash = (place, 0) if len(runs) == 1 else (number, place + number // 7)
            lines.append(Line(name.strip(), about, colour, dash, found))
    bands = [_band(each, scale) for each in told]
    return Lane(axis.title, lines, bands, axis.low, axis.high, axis.log)


def _band(told: Told, scale: float | None) -> Band:
    first, last = told.onset
    if scale is not None:
        first, last = ((told.run.hours_at(step) or 0.0) * scale for step in (first, last))
    return Band(first, last, told.severity, told.number, f"{told.run.name}: {told.record.get('title', 'finding')}")


def _is_in(told: Told, figure: Figure, shown: set[str]) -> bool:
    """A finding is drawn where its metrics are; the first figure also takes those that are about none that is shown."""
    first = next((each for each in FIGURES if shown & metrics_of(each)), None)
    is_homeless = not told.metrics & shown and told.severity != "info"
    return bool(told.metrics & metrics_of(figure) & shown) or (is_homeless and figure is first)


def _values(run: Run, name: str) -> Iterable[tuple[int, float, float | None]]:
    errors = dict(run.columns.get(f"{name}_se", []))
    return ((step, value, errors.get(step)) for step, value in run.columns[name])


def _numbers(lanes: Sequence[Lane]) -> str:
    lines = [line for lane in lanes for line in lane.lines]
    steps = sorted({point.x for line in lines for point in line.points})
    by_step = [{point.x: point for point in line.points} for line in lines]
    rows = [
        [f"{steps[place]:.0f}", *(_cell(known.get(steps[place])) for known in by_step)]
        for place in evenly(len(steps), NUM_ROWS)
    ]
    return table(["update", *(escape(line.about) for line in lines)], rows)


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    return write(point.y) + (f" ± {write(point.se)}" if point.se is not None else "")


def _unit(name: str) -> str:
    metric = describe(name)
    return f" ({metric.unit})" if metric and metric.unit not in ("1", "as named") else ""
