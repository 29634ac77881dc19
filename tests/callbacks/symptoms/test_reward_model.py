"""Reward models, on made-up histories."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.reward_model import (
    KINDS,
    learned_elsewhere,
    reward_model_at_chance,
    reward_model_order,
    reward_model_overfit,
    reward_scores_drift,
)

BY_ID = {kind.id: kind for kind in KINDS}
FACTS = {"stage": "reward_model", "num_eval": 512}


def every_tenth(value):
    return lambda step: value if step == 1 or step % 10 == 0 else None


def at_chance(noisy, path):
    return {
        "accuracy": noisy(0.5, 0.09),
        "reward_loss": math.log(2),
        "learning_rate": 1e-6,
        "update/relative_norm": every_tenth(path),
    }


def test_chance_with_weights_that_stay_is_named_after_forty_updates(view_of, noisy):
    columns = at_chance(noisy, 1e-6)
    alarm = reward_model_at_chance(view_of(columns, 50, **FACTS))
    assert (alarm.severity, alarm.basis) == ("warn", "statistical")
    view = view_of(columns, 50, optimizer__lr=1e-6, **FACTS)
    causes = [cause.id for cause in rank(BY_ID["reward_model_at_chance"], view)[:2]]
    assert set(causes) == {"learning_rate_too_low", "sft_learning_rate"}
    assert reward_model_at_chance(view_of(columns, 30, **FACTS)) is None


def test_a_head_that_wanders_before_it_learns_is_given_time(view_of, noisy):
    """The shipped outcome model is at chance for eighty updates, and then learns."""
    columns = at_chance(noisy, 2e-3)
    assert reward_model_at_chance(view_of(columns, 120, trainer__max_steps=240, **FACTS)) is None
    late = view_of(columns, 150, trainer__max_steps=240, **FACTS)
    assert reward_model_at_chance(late) is not None
    assert rank(BY_ID["reward_model_at_chance"], late)[0].id == "labels_noisy"


def test_held_out_pairs_can_prove_that_it_is_no_chance(view_of, noisy):
    columns = {**at_chance(noisy, 2e-3), "eval/accuracy": lambda step: 0.6 if step % 40 == 0 else None}
    assert reward_model_at_chance(view_of(columns, 150, trainer__max_steps=240, **FACTS)) is None


def test_learning_is_not_chance(view_of, noisy):
    columns = {**at_chance(noisy, 1e-6), "accuracy": noisy(0.66, 0.09)}
    assert reward_model_at_chance(view_of(columns, 200, **FACTS)) is None


def test_held_out_pairs_below_chance_are_named_while_training_learns(view_of, noisy):
    columns = {"accuracy": noisy(0.7, 0.08), "eval/accuracy": lambda step: {0: 0.5, 40: 0.4}.get(step)}
    assert reward_model_order(view_of(columns, 45, first=0, **FACTS)).severity == "critical"
    fine = {**columns, "eval/accuracy": lambda step: {0: 0.5, 40: 0.47}.get(step)}
    assert reward_model_order(view_of(fine, 45, first=0, **FACTS)) is None


def test_training_pairs_that_teach_nothing_about_others_are_named_by_what_scores_follow(view_of, noisy):
    columns = {"accuracy": noisy(0.98, 0.01), "eval/accuracy": lambda step: 0.51 if step % 10 == 0 else None}
    assert learned_elsewhere(view_of(columns, 60, **FACTS)).kind == "reward_model_overfit"
    by_length = {**columns, "rewards/length_correlation": 0.9}
    assert learned_elsewhere(view_of(by_length, 60, **FACTS)).kind == "reward_model_length_only"
    better = {**by_length, "eval/accuracy": lambda step: 0.65 if step % 10 == 0 else None}
    assert learned_elsewhere(view_of(better, 60, **FACTS)) is None


def test_scores_that_wander_off_are_named(view_of):
    columns = {"mean_reward": lambda step: 0.2 * step, "margin": 0.8}
    assert reward_scores_drift(view_of(columns, 80, **FACTS)) is not None
    assert reward_scores_drift(view_of({**columns, "mean_reward": 3.0}, 80, **FACTS)) is None
    small = {"mean_reward": lambda step: 0.01 * step, "margin": 0.01}
    assert reward_scores_drift(view_of(small, 80, **FACTS)) is None


def test_overfitting_needs_accuracy_that_does_not_gain(view_of, noisy):
    losses = {0: 0.69, 40: 0.5, 80: 0.6, 120: 0.75}
    columns = {
        "reward_loss": noisy(lambda step: 0.69 - 0.005 * step, 0.01),
        "eval/reward_loss": lambda step: losses.get(step),
        "eval/accuracy": lambda step: {0: 0.5, 40: 0.75, 80: 0.74, 120: 0.73}.get(step),
    }
    alarm = reward_model_overfit(view_of(columns, 125, first=0, **FACTS))
    assert alarm.onset == (40, 80)
    surer = {**columns, "eval/accuracy": lambda step: {0: 0.5, 40: 0.75, 80: 0.8, 120: 0.83}.get(step)}
    assert reward_model_overfit(view_of(surer, 125, first=0, **FACTS)) is None


@pytest.mark.parametrize("rule", [reward_model_at_chance, reward_scores_drift, reward_model_overfit])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
