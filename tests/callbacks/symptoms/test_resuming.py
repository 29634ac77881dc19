"""The seam of a resumed run, on made-up histories."""

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.resuming import KINDS, resume_discontinuity

BY_ID = {kind.id: kind for kind in KINDS}


@pytest.fixture
def resumed(view_of, noisy):
    """Return what a rule sees some rows after a resume from update 30."""

    def build(num_rows=6, learning_rate=1e-4, **after):
        columns = {
            "nll": noisy(1.0, 0.02),
            "entropy": noisy(0.5, 0.02),
            "update/relative_norm": 1e-4,
            "learning_rate": 1e-4,
        }
        view = view_of(columns, 30, stage="sft")
        view.history.anchor(30)
        for step in range(31, 31 + num_rows):
            row = {name: value(step) if callable(value) else value for name, value in columns.items()}
            view.history.add(step, {**row, "learning_rate": learning_rate, **after})
        return view

    return build


def test_a_run_that_goes_on_is_silent(resumed):
    assert all(resume_discontinuity(resumed(num)) is None for num in range(1, 20))


def test_a_loss_that_steps_at_the_seam_is_named_with_the_seam_as_its_onset(resumed):
    alarm = resume_discontinuity(resumed(nll=2.0))
    assert (alarm.severity, alarm.onset, alarm.evidence[0].metric) == ("warn", (30, 31), "nll")
    assert resume_discontinuity(resumed(nll=1.05)) is None


def test_another_learning_rate_alone_is_a_remark(resumed):
    alarm = resume_discontinuity(resumed(learning_rate=3e-4))
    assert (alarm.severity, alarm.evidence[0].metric) == ("info", "learning_rate")
    assert resume_discontinuity(resumed(learning_rate=3e-3)).severity == "warn"  # nobody means that
    assert resume_discontinuity(resumed(learning_rate=1e-5)).severity == "info"
    assert resume_discontinuity(resumed(learning_rate=1.1e-4)) is None


def test_the_cause_is_told_by_what_changed(resumed):
    kind = BY_ID["resume_discontinuity"]
    assert rank(kind, resumed(learning_rate=1e-3, nll=2.0))[0].id == "learning_rate_jumped"
    assert rank(kind, resumed(nll=2.0, **{"update/relative_norm": 1e-3}))[0].id == "optimizer_state_lost"


def test_a_run_that_was_never_resumed_has_no_seam(view_of):
    assert resume_discontinuity(view_of({"nll": lambda step: float(step)}, 60)) is None
