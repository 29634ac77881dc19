"""Time, and what nobody measured, on made-up histories."""

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.resources import KINDS, memory_near_limit, metric_missing, throughput_loss

BY_ID = {kind.id: kind for kind in KINDS}


def test_half_the_speed_is_a_remark(view_of, noisy):
    slower = {"tokens_per_second": noisy(lambda step: 1000.0 if step < 40 else 400.0, 20.0)}
    alarm = throughput_loss(view_of(slower, 80))
    assert (alarm.severity, alarm.evidence[0].metric) == ("info", "tokens_per_second")
    assert throughput_loss(view_of({"tokens_per_second": noisy(1000.0, 150.0)}, 80)) is None
    longer = {"step_time": noisy(lambda step: 1.0 if step < 40 else 2.5, 0.05)}
    assert throughput_loss(view_of(longer, 80)).evidence[0].metric == "step_time"


def test_a_slow_reward_is_told_by_its_own_clock(view_of):
    columns = {"step_time": 1.0, "time/reward": lambda step: 0.1 if step < 20 else 2.0}
    assert rank(BY_ID["throughput_loss"], view_of(columns, 60))[0].id == "reward_slow"


def test_one_part_that_alone_became_slow_is_a_warning(view_of, noisy):
    columns = {
        "tokens_per_second": noisy(lambda step: 1000.0 if step < 30 else 200.0, 20.0),
        "time/rollout": noisy(0.5, 0.02),
        "time/reward": noisy(lambda step: 0.01 if step < 30 else 2.0, 0.001),
    }
    view = view_of(columns, 80, stage="rl")
    assert throughput_loss(view).severity == "warn"
    assert rank(BY_ID["throughput_loss"], view)[0].id == "reward_slow"
    evaluated = {**columns, "time/evaluation": lambda step: 60.0 if step % 2 == 0 else None}  # not in every row
    assert throughput_loss(view_of(evaluated, 80, stage="rl")).severity == "warn"
    busy = {**columns, "time/rollout": lambda step: 0.5 if step < 30 else 2.5, "time/reward": 0.01}
    assert throughput_loss(view_of(busy, 80, stage="rl")).severity == "info"


def test_memory_that_is_all_but_full_is_named(view_of):
    facts = {"device__memory_gib": 80.0}
    assert memory_near_limit(view_of({"memory/peak_gib": 79.0}, 2, **facts)).severity == "warn"
    assert memory_near_limit(view_of({"memory/peak_gib": 70.0}, 2, **facts)) is None
    assert memory_near_limit(view_of({"memory/peak_gib": 79.0}, 2)) is None  # nobody said how much there is


def test_what_a_log_cannot_show_is_listed_with_what_would_show_it(view_of):
    alarm = metric_missing(view_of({"reward": 0.3, "kl": 0.01, "grad_norm": 1.0}, 10, stage="rl"))
    assert alarm.severity == "info"
    assert "entropy_collapse" in alarm.summary
    assert "zero_contrast" in alarm.summary
    assert "zero_gradient" not in alarm.summary
    assert metric_missing(view_of({"reward": 0.3}, 4, stage="rl")) is None  # it may come


def test_a_whole_log_lacks_nothing(view_of):
    columns = {
        "grad_norm": 1.0,
        "entropy": 0.5,
        "frac_reward_zero_std": 0.2,
        "completions/clipped_ratio": 0.0,
        "completions/mean_length": 7.0,
        "drift/forward_kl": 0.01,
    }
    assert metric_missing(view_of(columns, 10, stage="rl")) is None


@pytest.mark.parametrize("rule", [throughput_loss, memory_near_limit, metric_missing])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
