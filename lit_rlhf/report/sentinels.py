"""What a run must not lose: accuracy of each sentinel set, with its standard error."""

from collections.abc import Sequence
from math import nan

from lit_rlhf.report.figures import figure_from
from lit_rlhf.report.known_figures import Axis, Figure
from lit_rlhf.report.numbers import Point, write
from lit_rlhf.report.read import Run
from lit_rlhf.report.text import escape, table


def sentinels_section(runs: Sequence[Run]) -> str:
    """Draw accuracy over updates for each set, and say what changed since the first evaluation."""
    points: dict[tuple[str, str], list[Point]] = {}
    rows = []
    for run in runs:
        last = {}
        for line in run.lines.get("sentinels", []):
            name = str(line.get("set", "?"))
            point = Point(float(line.get("step", 0)), _number(line.get("accuracy")), _number(line.get("se")))
            points.setdefault((run.name, name), []).append(point)
            last[name] = line
        for name, line in last.items():
            row = [name, line.get("n", ""), _plus_minus(line), _signed(line.get("change")), _signed(line.get("sigma"))]
            cells = [escape(cell) for cell in row]
            rows.append([escape(run.name), *cells] if len(runs) > 1 else cells)
    if not points:
        return "<p>No sentinels were evaluated; <code>SentinelEval</code> does it.</p>"
    figures = [
        figure_from(
            runs, Figure(name, (Axis("answered right (share) ± s.e.", ((name, ""),), None, 1),)), _only(points, name)
        )
        for name in dict.fromkeys(name for _, name in points)
    ]
    header = ["set", "items", "last accuracy", "change", "σ"]
    summary = table(["run", *header] if len(runs) > 1 else header, rows)
    return f'<div class="figures">{"".join(figures)}</div>{summary}'


def _only(points: dict[tuple[str, str], list[Point]], name: str) -> dict[tuple[str, str], list[Point]]:
    return {key: found for key, found in points.items() if key[1] == name}


def _plus_minus(line: dict[str, object]) -> str:
    return f"{write(_number(line.get('accuracy')))} ± {write(_number(line.get('se')))}"


def _signed(value: object) -> str:
    number = _number(value)
    return f"+{write(number)}" if number > 0 else write(number)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan
