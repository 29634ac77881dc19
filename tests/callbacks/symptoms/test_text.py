"""Completions that are cut, endless, drawn out, empty or repeat themselves, on made-up histories."""

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.text import (
    KINDS,
    all_truncated,
    empty_completions,
    length_collapse,
    length_hacking,
    never_stops,
    repetition,
    truncation,
)

BY_ID = {kind.id: kind for kind in KINDS}
FACTS = {"window__num_completions": 128}
CUT, LENGTH, CORRELATION = "completions/clipped_ratio", "completions/mean_length", "rewards/length_correlation"


def ramp(first: float, last: float, num_rows: int = 60):
    return lambda step: first + (last - first) * min(1.0, step / num_rows)


def evaluated(value, error: float = 0.03):
    return {
        "eval/pass_at_1": lambda step: value(step) if step % 10 == 0 else None,
        "eval/pass_at_1_se": lambda step: error if step % 10 == 0 else None,
    }


def test_a_limit_that_is_too_small_is_named_after_three_rows(view_of):
    columns = {CUT: [0.6, 0.62, 0.58], LENGTH: 3.7, "completions/mean_terminated_length": 3.5}
    view = view_of(columns, 3, every=10, model__sampling__max_new_tokens=4, **FACTS)
    alarm = truncation(view)
    assert (alarm.severity, alarm.onset) == ("critical", (1, 1))
    first = rank(BY_ID["truncation"], view)[0]
    assert (first.id, first.setting) == ("max_new_tokens_too_small", "model.sampling.max_new_tokens: 4 → 8")


def test_few_cut_completions_or_ever_fewer_are_healthy(view_of, noisy):
    assert truncation(view_of({CUT: noisy(0.05, 0.02)}, 60, **FACTS)) is None
    assert truncation(view_of({CUT: ramp(0.5, 0.12)}, 55, **FACTS)) is None
    assert truncation(view_of({CUT: [0.5, 0.0, 0.5]}, 3, window__num_completions=2)) is None  # three of six


def test_more_and_more_cut_completions_are_named(view_of):
    assert truncation(view_of({CUT: ramp(0.0, 0.4)}, 60, **FACTS)).severity == "warn"


def test_three_rows_in_which_all_are_cut_are_exact(view_of):
    alarm = all_truncated(view_of({CUT: [0.9, 0.95, 1.0, 1.0, 1.0]}, 5, **FACTS))
    assert (alarm.severity, alarm.basis) == ("critical", "exact")
    assert all_truncated(view_of({CUT: [1.0, 1.0, 0.99]}, 3, **FACTS)) is None


def test_what_never_ended_is_told_from_what_stopped_ending(view_of):
    view = view_of({CUT: 1.0, "completions/repetition": 0.8}, 5, **FACTS)
    assert never_stops(view).onset == (1, 1)
    assert rank(BY_ID["never_stops"], view)[0].id == "stop_token_untrained"
    assert never_stops(view_of({CUT: ramp(0.0, 1.0)}, 80, **FACTS)) is None


def test_a_larger_limit_at_evaluation_that_suffices_points_to_the_limit(view_of):
    facts = {"model__sampling__max_new_tokens": 4, "model__eval_sampling__max_new_tokens": 12}
    columns = {CUT: 1.0, "eval/completions/clipped_ratio": 0.0}
    assert rank(BY_ID["never_stops"], view_of(columns, 5, **facts))[0].id == "max_new_tokens_too_small"


def test_longer_answers_that_are_rewarded_and_no_better_are_a_hack(view_of, noisy):
    columns = {LENGTH: noisy(ramp(100, 300), 5), CORRELATION: noisy(0.5, 0.1), "reward": noisy(ramp(0, 2), 0.1)}
    view = view_of(columns | evaluated(lambda step: 0.4), 60, first=0)
    assert length_hacking(view).severity == "warn"
    assert rank(BY_ID["length_hacking"], view)[0].id == "reward_favours_length"
    assert length_hacking(view_of(columns | evaluated(ramp(0.4, 0.1)), 60, first=0)).severity == "critical"


def test_longer_answers_that_are_better_are_none(view_of, noisy):
    columns = {LENGTH: noisy(ramp(100, 300), 5), CORRELATION: noisy(0.5, 0.1), "reward": noisy(ramp(0, 2), 0.1)}
    assert length_hacking(view_of(columns | evaluated(ramp(0.3, 0.8)), 60, first=0)) is None
    steady = {**columns, LENGTH: noisy(100, 8)}
    assert length_hacking(view_of(steady | evaluated(lambda step: 0.4), 60, first=0)) is None


def test_length_and_truncation_that_rise_together_are_named_without_evaluation(view_of, noisy):
    columns = {LENGTH: noisy(ramp(100, 300), 5), CUT: ramp(0.0, 0.5), CORRELATION: 0.4}
    assert length_hacking(view_of(columns, 60)).severity == "warn"
    assert length_hacking(view_of({LENGTH: noisy(ramp(100, 300), 5), CUT: 0.0, CORRELATION: 0.0}, 60)) is None


def test_grpos_length_normalisation_is_the_suspect_where_reward_does_not_follow_length(view_of, noisy):
    columns = {LENGTH: noisy(ramp(100, 300), 5), CUT: 0.0, CORRELATION: -0.1}
    view = view_of(columns, 60, model__aggregation="seq_mean_token_mean")
    assert rank(BY_ID["length_hacking"], view)[0].id == "length_normalisation"


@pytest.mark.parametrize(("share", "severity"), [(0.3, "warn"), (0.8, "critical")])
def test_empty_answers_are_named_after_five_rows(view_of, noisy, share, severity):
    columns = {"completions/empty_ratio": noisy(share, 0.02), CORRELATION: -0.6}
    view = view_of(columns, 5, **FACTS)
    assert empty_completions(view).severity == severity
    assert rank(BY_ID["empty_completions"], view)[0].id == "short_answer_reward"


def test_a_few_empty_answers_are_healthy(view_of, noisy):
    assert empty_completions(view_of({"completions/empty_ratio": noisy(0.04, 0.01)}, 60, **FACTS)) is None


def test_short_answers_are_named_when_they_are_worse(view_of, noisy):
    columns = {LENGTH: noisy(ramp(12, 3), 0.3), "reward": noisy(ramp(0.2, 0.8), 0.02), "reward_std": 0.4}
    assert length_collapse(view_of(columns | evaluated(ramp(0.4, 0.1)), 80, first=0)) is not None
    assert length_collapse(view_of(columns | evaluated(ramp(0.4, 0.8)), 80, first=0)) is None
    assert length_collapse(view_of(columns, 80)) is None


def test_loops_are_named_and_those_of_the_start_only_said(view_of, noisy):
    metric = "completions/repetition"
    assert repetition(view_of({metric: ramp(0.02, 0.6), "entropy": ramp(1.0, 0.1)}, 60)).severity == "warn"
    assert repetition(view_of({metric: noisy(0.1, 0.03)}, 60)) is None
    assert repetition(view_of({metric: noisy(0.7, 0.03)}, 60)).severity == "info"


def test_longer_and_better_answers_may_repeat_more(view_of, noisy):
    columns = {"completions/repetition": ramp(0.1, 0.35), "reward": noisy(ramp(0.2, 0.9), 0.02), "reward_std": 0.4}
    assert repetition(view_of(columns | evaluated(ramp(0.2, 0.8)), 60, first=0)).severity == "info"
    assert repetition(view_of(columns, 60)).severity == "warn"
