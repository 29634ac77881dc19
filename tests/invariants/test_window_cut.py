"""T6: an update is one number, however its window is cut (peers.md T6 is where all the others fail)."""

from functools import partial

import pytest
from short_runs import deviation, optimizer, same_samples

EVERY_TERM = {"beta": 0.1, "entropy_coef": 0.01}
SMOOTH = {"optimizer": optimizer("SGD", 0.05)}  # so that several updates do not amplify rounding: see below


def assert_same_run(run, other, tolerance=1e-5):
    assert deviation(run, other) < tolerance
    for mine, its in zip(run.metrics, other.metrics, strict=True):
        assert its == pytest.approx(mine, rel=1e-4, abs=1e-5)


CUTS = {
    "4": {"accumulate": 4},
    "16": {"accumulate": 16},
    "budget": {"max_tokens_per_forward": 60},
    "3-and-budget": {"accumulate": 3, "max_tokens_per_forward": 1},
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_one_update(algorithm, run, cut):
    whole, other = run(algorithm, **EVERY_TERM), run(algorithm, **EVERY_TERM, **cut)
    assert len(whole.tokens) == 1
    assert len(other.tokens) == cut.get("accumulate", 1)
    assert_same_run(whole, other)


@pytest.mark.parametrize("cut", [{"accumulate": 5}, {"accumulate": 2, "max_tokens_per_forward": 60}])
def test_several_windows_and_epochs_per_phase(algorithm, run, cut):
    shared = {**EVERY_TERM, **SMOOTH, "updates": 7, "windows_per_phase": 3, "epochs_per_phase": 2}
    whole, other = same_samples(partial(run, algorithm, **shared), partial(run, algorithm, **shared, **cut))
    assert len(whole.tokens) == len(whole.metrics) == 7
    assert_same_run(whole, other, 1e-4)


def test_an_epochs_last_phase_has_fewer_rows_than_micro_batches(algorithm, run):
    shared = {**EVERY_TERM, **SMOOTH, "updates": 3}
    whole, other = same_samples(partial(run, algorithm, **shared), partial(run, algorithm, **shared, accumulate=16))
    assert [len(tokens["input_ids"]) for tokens in whole.tokens] == [16, 8, 16]
    assert [tokens == {} for tokens in other.tokens] == [False] * 24 + [True] * 8 + [False] * 16
    assert_same_run(whole, other, 1e-4)


def test_the_rows_are_of_uneven_length(algorithm, run):
    """Or a mean of means would pass."""
    lengths = run(algorithm, **EVERY_TERM).tokens[0]["completion_mask"].sum(-1)
    assert lengths.min() < 4
    assert lengths.max() == 10


def test_the_second_of_several_updates_has_another_policy(algorithm, run):
    """Or the test of several updates would say no more than the test of one."""
    shared = {**EVERY_TERM, **SMOOTH, "updates": 7, "windows_per_phase": 3, "epochs_per_phase": 2}
    tokens = run(algorithm, **shared).tokens[1]
    mask = tokens["completion_mask"]
    assert (tokens["logps"] - tokens["old_logps"])[mask].abs().max() > 0.05
