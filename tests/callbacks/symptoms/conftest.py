"""Small made-up histories for the rules."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.history import History

Column = float | Sequence[float | None] | Callable[[int], float | None]
ViewOf = Callable[..., RunView]
Noisy = Callable[..., Callable[[int], float]]


@pytest.fixture
def view_of() -> ViewOf:
    """Build what a rule sees, from columns by metric name: a number, a list, or a function of the step."""

    def build(
        columns: Mapping[str, Column], num_rows: int = 60, *, first: int = 1, every: int = 1, **facts: Any
    ) -> RunView:
        history = History()
        for place in range(num_rows):
            step = first + place * every
            row = {name: _at(column, place, step) for name, column in columns.items()}
            history.add(step, {name: value for name, value in row.items() if value is not None})
        return RunView(history, {name.replace("__", "."): value for name, value in facts.items()}, {})

    return build


@pytest.fixture
def noisy() -> Noisy:
    """Return functions of the step that scatter around a level, or around another function, the same every time."""

    def build(level: float | Callable[[int], float], scatter: float, seed: int = 0) -> Callable[[int], float]:
        def value(step: int) -> float:
            center = level(step) if callable(level) else level
            return center + scatter * random.Random(step * 1009 + seed).gauss(0.0, 1.0)

        return value

    return build


def _at(column: Column, place: int, step: int) -> float | None:
    if callable(column):
        return column(step)
    return column if isinstance(column, int | float) else column[place]
