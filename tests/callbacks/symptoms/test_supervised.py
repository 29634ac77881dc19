"""Losses that rise or stay, on made-up histories."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.diverging import KINDS, loss_diverges
from lit_rlhf_callbacks.symptoms.held_out import held_out_overfit
from lit_rlhf_callbacks.symptoms.supervised import loss_flat

BY_ID = {kind.id: kind for kind in KINDS}
IPO = {"stage": "preference", "algorithm": "IPO", "step0__preference_loss": 25.0, "beta": 0.1}


def at_steps(*points):
    return lambda step: dict(points).get(step)


def test_a_loss_above_its_start_with_larger_gradients_is_named(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: 1.0 if step == 1 else 3.0, 0.1),
        "grad_norm": noisy(lambda step: 1.0 if step == 1 else 8.0, 0.1),
    }
    alarm = loss_diverges(view_of(columns, 20, stage="sft"))
    assert alarm.severity == "critical"
    assert rank(BY_ID["loss_diverges"], view_of(columns, 20, stage="sft"))[0].id == "learning_rate_too_high"
    assert loss_diverges(view_of({**columns, "grad_norm": 1.0}, 20, stage="sft")) is None  # nothing else agrees
    learns = {**columns, "nll": noisy(lambda step: 1.0 - 0.01 * step, 0.1)}
    assert loss_diverges(view_of(learns, 20, stage="sft")) is None


def test_a_loss_of_the_wrong_sign_climbs_by_updates_of_a_usual_size(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: 1.0 + 0.1 * step, 0.05),
        "grad_norm": noisy(lambda step: 1.0 + 0.2 * step, 0.05),
        "update/relative_norm": lambda step: 1e-3 if step == 1 or step % 10 == 0 else None,
    }
    view = view_of(columns, 20, stage="sft")
    assert loss_diverges(view) is not None
    assert rank(BY_ID["loss_diverges"], view)[0].id == "loss_sign"
    fast = {**columns, "update/relative_norm": lambda step: 0.05 if step == 1 or step % 10 == 0 else None}
    assert rank(BY_ID["loss_diverges"], view_of(fast, 20, stage="sft"))[0].id == "learning_rate_too_high"


def test_training_rows_unlike_held_out_ones_are_named_by_what_they_do_to_those(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: max(2.0, 6.0 - 0.2 * step), 0.05),
        "eval/nll": at_steps((0, 0.15), (20, 0.9), (40, 1.6)),
        "update/relative_norm": at_steps((1, 2e-3), (10, 2e-3), (20, 2e-3)),
    }
    view = view_of(columns, 30, first=0, stage="sft")
    assert loss_diverges(view).evidence[0].metric == "eval/nll"
    assert {cause.id for cause in rank(BY_ID["loss_diverges"], view)[:2]} == {"bad_data", "labels_shuffled"}
    harmless = {**columns, "eval/nll": at_steps((0, 0.15), (20, 0.12), (40, 0.1))}
    assert loss_diverges(view_of(harmless, 50, first=0, stage="sft")) is None
    alike = {**columns, "nll": noisy(0.15, 0.01)}
    assert loss_diverges(view_of(alike, 50, first=0, stage="sft")) is None


def test_a_bump_at_the_start_is_no_divergence(view_of, noisy):
    bump = {
        "nll": noisy(lambda step: 2.0 if step in (2, 3, 4) else 0.8, 0.05),
        "grad_norm": noisy(lambda step: 5.0 if step in (2, 3, 4) else 1.0, 0.1),
    }
    assert all(loss_diverges(view_of(bump, num, stage="sft")) is None for num in range(12, 40))


def test_the_scale_of_ipo_alarms_nobody(view_of, noisy):
    """25 at the start, noisy and slow to fall: only a rise above 25 would be a fault."""
    columns = {
        "preference_loss": noisy(lambda step: 25.0 - 0.2 * step, 2.0),
        "loss": noisy(lambda step: 25.0 - 0.2 * step, 2.0),
        "grad_norm": noisy(80.0, 15.0),
        "rewards/accuracies": noisy(0.7, 0.05),
    }
    for rule in (loss_diverges, loss_flat):
        assert all(rule(view_of(columns, num, **IPO)) is None for num in range(10, 80, 5))


def test_bad_data_in_the_middle_shows_as_a_jump(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: 1.0 - 0.01 * step if step < 70 else 0.95, 0.01),
        "grad_norm": noisy(lambda step: 1.0 if step < 70 else 3.0, 0.05),
        "mean_token_accuracy": 0.7,
    }
    assert loss_diverges(view_of(columns, 69, stage="sft")) is None
    jumped = view_of(columns, 80, stage="sft")
    assert loss_diverges(jumped) is not None
    assert loss_diverges(view_of(columns, 80)) is not None  # a foreign log, without facts


def test_an_exactly_constant_loss_is_named_without_statistics(view_of):
    alarm = loss_flat(view_of({"nll": 2.5}, 10, stage="sft"))
    assert (alarm.severity, alarm.basis, alarm.onset) == ("critical", "exact", (1, 1))
    assert loss_flat(view_of({"nll": [2.5] * 9 + [2.4]}, 10, stage="sft")) is None


def test_a_held_out_loss_that_stays_is_a_warning_where_weights_stay_too(view_of, noisy):
    columns = {
        "nll": noisy(1.0, 0.2),
        "learning_rate": 1e-9,
        "eval/nll": at_steps((20, 1.001), (40, 1.0), (60, 0.999)),
        "update/relative_norm": at_steps((1, 1e-6), (10, 1e-6), (20, 1e-6)),
    }
    assert loss_flat(view_of(columns, 39, stage="sft")) is None
    alarm = loss_flat(view_of(columns, 60, stage="sft"))
    assert (alarm.severity, alarm.evidence[0].metric) == ("warn", "eval/nll")
    moved = {**columns, "update/relative_norm": at_steps((1, 1e-3), (10, 1e-3), (20, 1e-3))}
    assert loss_flat(view_of(moved, 60, stage="sft")).severity == "info"
    learns = {**columns, "eval/nll": at_steps((20, 1.0), (40, 0.95), (60, 0.9))}
    assert loss_flat(view_of(learns, 60, stage="sft")) is None


def test_noise_that_hides_a_gain_is_no_flat_loss(view_of, noisy):
    assert loss_flat(view_of({"nll": noisy(1.0, 0.5), "learning_rate": 1e-5}, 60, stage="sft")) is None
    assert loss_flat(view_of({"nll": noisy(1.0, 0.02), "learning_rate": 1e-5}, 60, stage="sft")) is not None


def test_a_reward_model_that_is_slow_to_start_is_not_called_flat(view_of, noisy):
    columns = {
        "reward_loss": noisy(math.log(2), 0.01),
        "learning_rate": 5e-4,
        "update/relative_norm": at_steps((1, 2e-3), (10, 2e-3), (20, 2e-3)),
    }
    assert loss_flat(view_of(columns, 80, stage="reward_model")) is None


def test_a_held_out_loss_that_turns_twice_while_training_falls_is_overfitting(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: 1.0 - 0.008 * step, 0.01),
        "eval/nll": at_steps((0, 1.2), (20, 1.0), (40, 0.9), (60, 1.0), (80, 1.1)),
        "eval/num_tokens": at_steps((0, 20000.0), (80, 20000.0)),
    }
    assert held_out_overfit(view_of(columns, 70, first=0, stage="sft")) is None  # one evaluation may be luck
    alarm = held_out_overfit(view_of(columns, 90, first=0, stage="sft"))
    assert (alarm.onset, alarm.severity) == ((40, 60), "warn")
    few = {**columns, "eval/num_tokens": at_steps((0, 100.0), (80, 100.0))}
    assert held_out_overfit(view_of(few, 90, first=0, stage="sft")) is None  # within noise
    both = {**columns, "nll": noisy(1.0, 0.01)}
    assert held_out_overfit(view_of(both, 90, first=0, stage="sft")) is None


def test_a_turn_that_costs_a_hundredth_of_the_gain_is_no_overfitting(view_of, noisy):
    """Measured on a healthy run of the embedded model."""
    columns = {
        "nll": noisy(lambda step: max(0.01, 0.15 - 0.002 * step), 0.001),
        "eval/nll": at_steps((0, 0.148), (40, 0.02), (50, 0.0143), (60, 0.0176), (70, 0.0178)),
        "eval/num_tokens": at_steps((0, 1833.0), (70, 1833.0)),
    }
    assert held_out_overfit(view_of(columns, 75, first=0, stage="sft")) is None


def test_rows_that_are_learned_by_heart_may_hurt_from_the_first_update(view_of, noisy):
    columns = {
        "nll": noisy(lambda step: max(0.02, 0.2 - 0.003 * step), 0.005),
        "eval/nll": at_steps((0, 0.2), (20, 0.26), (40, 0.33)),
    }
    assert held_out_overfit(view_of(columns, 50, first=0, stage="sft")).onset == (0, 20)


@pytest.mark.parametrize("rule", [loss_diverges, loss_flat, held_out_overfit])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
    assert rule(view_of({"loss": 0.0, "reward": 0.3}, 60, stage="rl")) is None
