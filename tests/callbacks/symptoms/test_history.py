import math

from lit_rlhf_callbacks.symptoms.history import MAX_TRACE, NUM_BASELINE, NUM_RECENT, History


def filled(num: int, **settings: float) -> History:
    history = History()
    for step in range(1, num + 1):
        history.add(step, {"x": float(step), **settings})
    return history


def test_memory_does_not_grow_with_the_run() -> None:
    history = filled(5000)
    series = history["x"]
    assert len(series.start) == 3
    assert series.baseline == [float(step) for step in range(1, NUM_BASELINE + 1)]
    assert len(series.recent) == NUM_RECENT
    assert MAX_TRACE / 2 <= len(series.trace) < MAX_TRACE
    assert all(math.isclose(step, value, abs_tol=1) for step, value in series.trace)  # a ramp stays that ramp
    assert [step for step, _ in series.shape()] == sorted({step for step, _ in series.shape()})
    assert series.shape()[-1] == (5000, 5000.0)


def test_baselines_begin_when_the_learning_rate_stops_rising() -> None:
    history = History()
    history.add(0, {"eval/x": 3.0})  # an evaluation before the first update, without a rate
    for step in range(1, 100):
        history.add(step, {"x": float(step), "learning_rate": min(step, 30) * 1e-3})
    assert history["x"].baseline[0] == 31.0
    assert history["eval/x"].baseline == [3.0]


def test_a_run_that_logs_no_rate_is_warm_from_the_start() -> None:
    assert filled(NUM_BASELINE + 15)["x"].is_armed(15)
    assert not filled(NUM_BASELINE + 14)["x"].is_armed(15)


def test_not_a_number_is_counted_and_absence_is_not() -> None:
    history = History()
    for step, row in enumerate([{"x": 1.0}, {}, {"x": math.nan}, {"x": math.inf}, {"x": 2.0}], start=1):
        history.add(step, row)
    assert (history["x"].count, history["x"].num_bad, history["x"].first_bad) == (2, 2, 3)
    assert history.has("x", num_rows=2)
    assert not history.has("x", "y")


def test_rows_are_not_updates() -> None:
    history = History()
    for step in range(10, 310, 10):
        history.add(step, {"x": 1.0})
    assert history.stride() == 10


def test_a_resume_begins_new_baselines_and_remembers_the_start() -> None:
    history = filled(60)
    history.anchor(60)
    assert not history.has("x")
    assert history.before["x"][-1] == 60.0
    for step in range(61, 100):
        history.add(step, {"x": float(step)})
    assert history["x"].baseline[0] == 61.0
    assert history["x"].start == [1.0, 2.0, 3.0]
    assert history["x"].shape()[0] == (61, 61.0)

    again = History.from_state(history.state())
    again.anchor(99)
    again.add(100, {"x": 0.0})
    assert again["x"].start == [1.0, 2.0, 3.0]


def test_a_history_goes_on_from_its_state() -> None:
    one = filled(700, learning_rate=1e-3)
    two = History.from_state(one.state())
    for history in (one, two):
        for step in range(701, 900):
            history.add(step, {"x": float(step), "new": 1.0})
    assert two.state() == one.state()
