"""Progress and its noise, on made-up histories."""

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.progress import KINDS, eval_within_noise, lucky_checkpoint, plateau, sentinel_cliff

BY_ID = {kind.id: kind for kind in KINDS}


def test_a_reward_that_never_rose_is_named_where_a_gain_would_have_shown(view_of, noisy):
    columns = {"reward": noisy(0.3, 0.03), "learning_rate": 1e-6}
    alarm = plateau(view_of(columns, 110, stage="rl"))
    assert alarm.severity == "warn"
    assert plateau(view_of(columns, 80, stage="rl")) is None  # patience
    assert plateau(view_of(columns, 80, stage="rl", trainer__max_steps=120)) is not None


def test_noise_that_would_hide_a_gain_keeps_it_silent(view_of, noisy):
    assert plateau(view_of({"reward": noisy(0.3, 0.15), "learning_rate": 1e-6}, 200, stage="rl")) is None


def test_a_run_that_has_converged_is_no_plateau(view_of, noisy):
    risen = {"reward": noisy(lambda step: min(0.8, 0.3 + 0.01 * step), 0.03), "learning_rate": 1e-6}
    assert plateau(view_of(risen, 300, stage="rl")) is None
    solved = {"reward": noisy(0.97, 0.01), "learning_rate": 1e-6}
    assert plateau(view_of(solved, 300, stage="rl")) is None


def test_a_slow_rise_is_no_plateau(view_of, noisy):
    slow = {"reward": noisy(lambda step: 0.3 + 0.0006 * step, 0.03), "learning_rate": 1e-6}
    assert plateau(view_of(slow, 200, stage="rl")) is None


def test_the_cause_of_a_plateau_is_told_by_signs(view_of, noisy):
    dead = {"reward": noisy(0.02, 0.01), "frac_reward_zero_std": 0.95, "update/relative_norm": 1e-3, "kl": 0.02}
    assert rank(BY_ID["plateau"], view_of(dead, 110, stage="rl"))[0].id == "zero_contrast"
    stays = {"reward": noisy(0.4, 0.03), "frac_reward_zero_std": 0.2, "update/relative_norm": 1e-8, "kl": 1e-8}
    assert rank(BY_ID["plateau"], view_of(stays, 110, stage="rl"))[0].id == "learning_rate_too_low"


def sentinels(*points):
    steps = {10 * place: point for place, point in enumerate(points)}
    return {
        "sentinel/facts/change": lambda step: steps[step][0] if step in steps else None,
        "sentinel/facts/sigma": lambda step: steps[step][1] if step in steps else None,
    }


def test_a_cliff_is_named_at_once_and_a_drop_at_the_second_look(view_of):
    cliff = sentinel_cliff(view_of(sentinels((0.0, 0.0), (-0.6, -6.0)), 11, first=0))
    assert cliff.severity == "critical"
    assert sentinel_cliff(view_of(sentinels((0.0, 0.0), (-0.08, -3.5)), 11, first=0)) is None
    drop = sentinel_cliff(view_of(sentinels((0.0, 0.0), (-0.08, -3.5), (-0.09, -3.6)), 21, first=0))
    assert drop.severity == "warn"
    assert sentinel_cliff(view_of(sentinels((0.0, 0.0), (-0.02, -3.2), (-0.02, -3.2)), 21, first=0)) is None
    assert sentinel_cliff(view_of(sentinels((0.0, 0.0), (-0.05, -1.0), (0.02, 0.5)), 21, first=0)) is None


def evaluations(*accuracies):
    steps = {10 * place: value for place, value in enumerate(accuracies)}
    return {
        "eval/pass_at_1": lambda step: steps.get(step),
        "eval/pass_at_1_se": lambda step: 0.03 if step in steps else None,
    }


def test_a_gain_within_noise_is_a_remark_at_the_end(view_of):
    columns = evaluations(0.40, 0.42, 0.41, 0.44)
    assert eval_within_noise(view_of(columns, 31, first=0, trainer__max_steps=30)).severity == "info"
    assert eval_within_noise(view_of(columns, 31, first=0, trainer__max_steps=100)) is None
    gains = evaluations(0.40, 0.5, 0.6, 0.7)
    assert eval_within_noise(view_of(gains, 31, first=0, trainer__max_steps=30)) is None


def test_a_best_that_sticks_out_by_chance_is_a_remark(view_of):
    lucky = evaluations(0.40, 0.41, 0.48, 0.42, 0.41)
    assert lucky_checkpoint(view_of(lucky, 41, first=0, trainer__max_steps=40)).severity == "info"
    real = evaluations(0.40, 0.5, 0.6, 0.62, 0.63)
    assert lucky_checkpoint(view_of(real, 41, first=0, trainer__max_steps=40)) is None


@pytest.mark.parametrize("rule", [plateau, sentinel_cliff, eval_within_noise, lucky_checkpoint])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
