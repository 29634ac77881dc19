"""T6: the gradient of an update is one number, however its window is cut (peers.md T6 is where others fail)."""

import pytest


@pytest.mark.parametrize("settings", [{"accumulate": 4}, {"accumulate": 16}, {"max_tokens_per_forward": 50}])
def test_the_update_does_not_depend_on_how_the_window_is_cut(algorithm, train_run, largest_difference, settings):
    shared = {"beta": 0.1, "entropy_coef": 0.01, "group_size": 4}
    whole, cut = train_run(algorithm, **shared), train_run(algorithm, **shared, **settings)
    assert len(cut.tokens) == settings.get("accumulate", 1)
    assert largest_difference(whole, cut) < 1e-5
    assert whole.metrics[0]["loss"] == pytest.approx(cut.metrics[0]["loss"], abs=1e-5)


def test_several_updates_per_phase_do_not_depend_on_the_cut(algorithm, train_run, largest_difference):
    shared = {"updates": 4, "windows_per_phase": 2, "epochs_per_phase": 2, "group_size": 4}
    whole, cut = train_run(algorithm, **shared), train_run(algorithm, **shared, accumulate=4)
    difference = largest_difference(whole, cut)
    assert difference < 1e-4


def test_the_update_moves_the_weights(algorithm, train_run, largest_difference):
    first, second = train_run(algorithm, updates=1), train_run(algorithm, updates=2)
    assert largest_difference(first, second) > 1e-6


def test_rows_have_uneven_lengths(algorithm, train_run):
    lengths = train_run(algorithm).tokens[0]["completion_mask"].sum(-1)
    assert lengths.min() < lengths.max()
