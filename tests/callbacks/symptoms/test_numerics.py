"""Numbers that break, on made-up histories."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.numerics import (
    KINDS,
    gradient_spikes,
    gradient_vanishing,
    not_a_number,
    zero_gradient,
)

NAN = math.nan
BY_ID = {kind.id: kind for kind in KINDS}


def test_nan_is_named_at_once_with_its_step(view_of):
    alarm = not_a_number(view_of({"loss": [1.0, 0.9, NAN], "grad_norm": [1.0, 1.0, NAN]}, 3))
    assert (alarm.severity, alarm.basis, alarm.onset) == ("critical", "exact", (3, 3))


def test_what_is_not_logged_is_no_nan(view_of):
    assert not_a_number(view_of({"loss": 1.0, "eval/nll": lambda step: 1.0 if step % 10 == 0 else None}, 30)) is None


def test_one_bad_row_that_is_over_is_a_warning(view_of):
    assert not_a_number(view_of({"loss": [1.0, NAN, 1.0, 1.0]}, 4)).severity == "warn"


def test_an_infinite_gradient_is_normal_in_fp16_while_it_looks_for_its_scale(view_of):
    columns = {"loss": 1.0, "grad_norm": [math.inf, 1.0, 1.0]}
    assert not_a_number(view_of(columns, 3, trainer__precision="16-mixed")) is None
    assert not_a_number(view_of(columns, 3, trainer__precision="bf16-mixed")) is not None


def test_fp16_and_a_broken_reward_are_told_apart_by_facts(view_of):
    columns = {"loss": [1.0, NAN], "reward": [0.1, 0.2], "reward_std": 0.4}
    half = rank(BY_ID["not_a_number"], view_of(columns, 2, stage="rl", trainer__precision="16-mixed"))
    assert half[0].id == "half_precision_overflow"
    bad = rank(BY_ID["not_a_number"], view_of({**columns, "reward": [0.1, NAN]}, 2, stage="rl"))
    assert bad[0].id == "bad_reward"


def test_three_zero_gradients_are_named(view_of):
    alarm = zero_gradient(view_of({"grad_norm": [1.0, 0.0, 0.0, 0.0], "loss": 0.0}, 4, stage="sft"))
    assert (alarm.severity, alarm.onset) == ("critical", (2, 2))
    assert zero_gradient(view_of({"grad_norm": [1.0, 0.0, 0.0, 1e-9]}, 4)) is None
    assert zero_gradient(view_of({"grad_norm": [1.0, 1.0, 0.0, 0.0]}, 4)) is None


def test_a_solved_task_has_zero_gradients_for_some_rows(view_of):
    few = {"grad_norm": [1.0] * 10 + [0.0] * 5, "frac_reward_zero_std": [0.2] * 10 + [1.0] * 5}
    assert zero_gradient(view_of(few, 15, stage="rl")) is None
    many = {"grad_norm": [1.0] * 10 + [0.0] * 12, "frac_reward_zero_std": [0.2] * 10 + [1.0] * 12}
    assert zero_gradient(view_of(many, 22, stage="rl")) is not None


def test_a_phase_without_contrast_says_so_once(view_of):
    columns = {"grad_norm": [1.0] * 8 + [0.0] * 5, "frac_reward_zero_std": [0.1] + [None] * 7 + [1.0] + [None] * 4}
    assert zero_gradient(view_of(columns, 13, stage="rl")) is None


def test_in_a_sparse_log_a_zero_gradient_is_that_of_one_update(view_of):
    """A public GRPO run, logged every 10 updates: half of its groups have no contrast, it still learns."""
    columns = {"grad_norm": [1.0] * 5 + [0.0] * 10, "frac_reward_zero_std": 0.5}
    assert zero_gradient(view_of(columns, 9, first=10, every=10)) is None
    assert zero_gradient(view_of(columns, 15, first=10, every=10)) is not None


def test_gradients_of_exactly_zero_have_not_vanished(view_of):
    norms = [1.0] * 30 + [0.0, 0.0, 0.9] * 10
    assert gradient_vanishing(view_of({"grad_norm": norms, "nll": 1.0}, 60, stage="sft")) is None


def test_spikes_that_harm_are_a_warning_and_others_a_remark(view_of, noisy):
    spikes = {40, 45, 50}
    norms = noisy(lambda step: 30.0 if step in spikes else 1.0, 0.1)
    harmless = gradient_spikes(view_of({"grad_norm": norms, "nll": noisy(1.0, 0.02)}, 60, stage="sft"))
    assert harmless.severity == "info"
    harmed = {"grad_norm": norms, "nll": noisy(lambda step: 1.0 if step < 40 else 2.0, 0.02)}
    assert gradient_spikes(view_of(harmed, 60, stage="sft")).severity == "warn"
    assert gradient_spikes(view_of({"grad_norm": noisy(1.0, 0.2), "nll": 1.0}, 60, stage="sft")) is None


def test_live_steps_of_a_dead_run_are_no_spikes(view_of):
    """A public GRPO run with 95 % of its groups dead: each update that carried signal looks like a spike."""
    live = {step for step in range(1, 101) if step % 8 == 0}
    columns = {
        "grad_norm": lambda step: 0.5 if step in live else 0.001,
        "frac_reward_zero_std": lambda step: 0.875 if step in live else 1.0,
        "reward": 0.01,
    }
    assert gradient_spikes(view_of(columns, 100, stage="rl")) is None


def test_a_gradient_that_vanishes_without_a_gain_is_named(view_of, noisy):
    norms = noisy(lambda step: 1.0 if step < 30 else 0.02, 0.002)
    assert gradient_vanishing(view_of({"grad_norm": norms, "nll": noisy(1.0, 0.02)}, 60, stage="sft")) is not None
    learned = {"grad_norm": norms, "nll": noisy(lambda step: 1.0 if step < 30 else 0.1, 0.002)}
    assert gradient_vanishing(view_of(learned, 60, stage="sft")) is None


def test_spikes_of_a_thousand_are_a_warning_even_without_harm(view_of, noisy):
    norms = noisy(lambda step: 1000.0 if step in (40, 49) else 1.0, 0.1)
    view = view_of({"grad_norm": norms, "nll": noisy(1.0, 0.02)}, 55, stage="sft")
    assert gradient_spikes(view).severity == "warn"
    assert rank(BY_ID["gradient_spikes"], view)[0].id == "bad_batch"


def test_a_nan_out_of_the_blue_is_not_first_blamed_on_the_learning_rate(view_of):
    columns = {"nll": [1.0] * 30 + [NAN], "grad_norm": [1.0] * 29 + [NAN, NAN]}
    view = view_of(columns, 31, stage="sft", trainer__precision="32-true")
    assert rank(BY_ID["not_a_number"], view)[0].id == "bad_data"


@pytest.mark.parametrize("rule", [not_a_number, zero_gradient, gradient_spikes, gradient_vanishing])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
