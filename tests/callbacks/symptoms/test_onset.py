import random
from statistics import median
from time import process_time

import pytest

from lit_rlhf_callbacks.symptoms.onset import find_onset, is_log_like

ONSET = 120


def course(shape: str, seed: int, num: int = 200, correlation: float = 0.5) -> list[tuple[int, float]]:
    """Unit autoregressive noise; from ONSET on a step of 4 σ, or a ramp of 8 σ over 100 rows."""
    noise, values, rng = 0.0, [], random.Random(seed)
    for step in range(num):
        noise = correlation * noise + rng.gauss(0, 1) * (1 - correlation**2) ** 0.5
        run = max(0, step - ONSET)
        fault = 4.0 * (step >= ONSET) if shape == "step" else 8.0 * run / 100
        values.append((step, 10 + noise + fault))
    return values


@pytest.mark.parametrize(("shape", "at_median", "at_p90"), [("step", 1, 3), ("ramp", 8, 25)])
def test_the_interval_lies_where_the_fault_began(shape: str, at_median: float, at_p90: float) -> None:
    found = [find_onset(course(shape, seed)) for seed in range(20)]
    errors = sorted(abs((first + last) / 2 - ONSET) for first, last in found)
    assert median(errors) <= at_median
    assert errors[17] <= at_p90


def test_a_metric_that_varies_by_factors_is_fitted_on_its_logarithm() -> None:
    values = [(step, 0.01 * 1.1 ** max(0, step - 40)) for step in range(80)]
    first, last = find_onset(values, log=True)
    assert 38 <= first <= last <= 43
    assert is_log_like([value for _, value in values])
    assert not is_log_like([1.0, 2.0])
    assert not is_log_like([0.0, 9.0])


def test_the_first_bad_row_is_the_onset() -> None:
    assert find_onset([(step, 0.0) for step in range(30)] + [(30, 5.0)]) == (30, 30)


def test_steps_are_counted_and_not_rows() -> None:
    assert find_onset([(10 * row, float(row >= 20)) for row in range(40)]) == (200, 200)


def test_too_short_a_trace_has_no_onset() -> None:
    assert find_onset([(step, 1.0) for step in range(3)]) is None


def test_a_fit_of_a_full_trace_takes_no_time() -> None:
    trace = course("ramp", 0, num=295)[:295]
    times = []
    for _ in range(5):
        start = process_time()
        find_onset(trace)
        times.append(process_time() - start)
    assert min(times) < 0.05


def test_a_fault_that_comes_back_before_its_trace_has_a_point_is_dated_now():
    assert not is_log_like([])
    assert find_onset([]) is None
