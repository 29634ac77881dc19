"""What margins hide, on made-up histories."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.preference import KINDS, beta_scale, displacement, margins_saturate, orpo_numerics

BY_ID = {kind.id: kind for kind in KINDS}
DPO = {"stage": "preference", "algorithm": "DPO", "beta": 0.1, "logps_over": "sum", "num_eval": 256}
ORPO = {"stage": "preference", "algorithm": "ORPO", "beta": 0.1, "logps_over": "mean"}


def falling(nats_per_token, evaluations):
    """Columns of a run whose chosen completions of ten tokens lose so much."""
    return {
        "rewards/chosen": lambda step: -0.1 * 10 * nats_per_token * min(1.0, step / 40),
        "rewards/margins": lambda step: 0.05 * step,
        "completions/mean_length": 10.0,
        "eval/rewards/accuracies": lambda step: evaluations.get(step),
    }


WORSE, BETTER = {20: 0.9, 40: 0.85, 60: 0.7}, {20: 0.7, 40: 0.85, 60: 0.9}


def test_both_falling_is_normal_until_held_out_pairs_worsen(view_of):
    assert displacement(view_of(falling(0.5, BETTER), 60, **DPO)) is None
    alarm = displacement(view_of(falling(0.5, WORSE), 60, **DPO))
    assert (alarm.severity, alarm.evidence[-1].metric) == ("warn", "eval/rewards/accuracies")
    assert displacement(view_of(falling(0.1, WORSE), 60, **DPO)) is None  # too little to explain it


def test_a_factor_e_per_token_is_too_much_whatever_else_says(view_of):
    assert displacement(view_of(falling(1.5, BETTER), 60, **DPO)) is not None
    assert displacement(view_of(falling(1.5, BETTER), 60, **{**DPO, "algorithm": "APODown"})) is None  # it is meant


def test_held_out_log_probs_are_the_better_witness(view_of):
    held_out = {"eval/logps/chosen_per_token": lambda step: {20: -0.2, 40: -0.6, 60: -0.9}.get(step)}
    simpo = {**DPO, "algorithm": "SimPO"}
    assert displacement(view_of(falling(0.5, WORSE), 60, **simpo)) is None  # its rewards have no start to compare with
    assert displacement(view_of({**falling(0.5, WORSE), **held_out}, 60, **simpo)) is not None


def test_rising_chosen_completions_are_no_displacement(view_of):
    assert displacement(view_of(falling(-0.5, WORSE), 60, **DPO)) is None


@pytest.mark.parametrize(
    ("beta", "over", "algorithm", "fires"),
    [
        (0.1, "sum", "DPO", False),
        (0.1, "mean", "DPO", True),
        (2.0, "mean", "SimPO", False),
        (5.0, "sum", "DPO", True),
        (0.1, "mean", "ORPO", False),
        (0.1, "mean", "IPO", False),
    ],
)
def test_beta_has_the_scale_of_what_it_multiplies(view_of, beta, over, algorithm, fires):
    facts = {"stage": "preference", "algorithm": algorithm, "beta": beta, "logps_over": over}
    alarm = beta_scale(view_of({"loss": 1.0}, 1, **facts))
    assert (alarm is not None) is fires
    if fires:
        causes = rank(BY_ID["beta_scale"], view_of({"loss": 1.0}, 1, **facts))
        assert causes[0].setting.startswith(f"model.beta: {beta:g} → ")


def test_held_out_rewards_tell_what_is_compared(view_of):
    """beta × the change of a sum is the reward; a seventh of it is a mean over seven tokens."""
    logps = lambda step: {0: -12.0, 20: -20.0, 40: -26.0}.get(step)  # noqa: E731
    sums = {"eval/logps/rejected": logps, "eval/rewards/rejected": lambda step: {0: 0.0, 20: -0.8, 40: -1.4}.get(step)}
    assert beta_scale(view_of(sums, 41, first=0, **DPO)) is None
    means = {**sums, "eval/rewards/rejected": lambda step: {0: 0.0, 20: -0.11, 40: -0.2}.get(step)}
    alarm = beta_scale(view_of(means, 41, first=0, **DPO))
    assert (alarm.basis, alarm.severity) == ("exact", "critical")


def test_a_saturated_loss_is_a_remark(view_of):
    facts = {**DPO, "step0__preference_loss": math.log(2)}
    columns = {"preference_loss": 0.005, "rewards/accuracies": 1.0}
    assert margins_saturate(view_of(columns, 30, **facts)).severity == "info"
    assert margins_saturate(view_of({**columns, "preference_loss": 0.3}, 30, **facts)) is None


def test_odds_of_sums_are_seen_in_the_first_rows_of_orpo(view_of):
    columns = {"rewards/chosen": -8.0, "logps/chosen": -80.0, "completions/mean_length": 40.0}
    alarm = orpo_numerics(view_of(columns, 3, **ORPO))
    assert (alarm.severity, alarm.basis) == ("critical", "exact")
    means = {**columns, "rewards/chosen": -0.2}
    assert orpo_numerics(view_of(means, 3, **ORPO)) is None


def test_odds_that_outweigh_the_likelihood_are_named(view_of):
    columns = {"rewards/chosen": -0.2, "preference_loss": 9.0, "loss": 10.0}
    assert orpo_numerics(view_of(columns, 12, **ORPO)) is not None
    assert orpo_numerics(view_of({**columns, "preference_loss": 0.07, "loss": 1.2}, 12, **ORPO)) is None
    assert orpo_numerics(view_of(columns, 12, **DPO)) is None


@pytest.mark.parametrize("rule", [displacement, beta_scale, margins_saturate, orpo_numerics])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
