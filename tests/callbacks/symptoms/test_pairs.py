"""Pairs that say nothing or the opposite, on made-up histories."""

import pytest

from lit_rlhf_callbacks.symptoms.pairs import accuracy_at_chance, identical_pairs, pairs_swapped

DPO = {"stage": "preference", "algorithm": "DPO", "beta": 0.1}
LENGTHS = {"completions/min_length": 4.0, "completions/max_length": 9.0}


def test_accuracy_below_chance_is_named_and_at_chance_is_not(view_of, noisy):
    alarm = pairs_swapped(view_of({"rewards/accuracies": noisy(0.2, 0.08)}, 25, **DPO))
    assert (alarm.kind, alarm.severity) == ("pairs_swapped", "critical")
    assert pairs_swapped(view_of({"rewards/accuracies": noisy(0.48, 0.09)}, 25, **DPO)) is None


def test_a_start_policy_that_finds_rejected_answers_far_likelier_is_suspicious(view_of):
    swapped = {**LENGTHS, "rewards/accuracies": 0.9, "logps/chosen": -14.0, "logps/rejected": -1.0}
    alarm = pairs_swapped(view_of(swapped, 5, **DPO))
    assert (alarm.severity, alarm.basis) == ("warn", "inferred")
    right = {**swapped, "logps/chosen": -1.0, "logps/rejected": -14.0}
    assert pairs_swapped(view_of(right, 5, **DPO)) is None


def test_lengths_may_explain_what_is_less_likely(view_of):
    long_chosen = {
        "completions/min_length": 4.0,
        "completions/max_length": 200.0,
        "logps/chosen": -140.0,
        "logps/rejected": -10.0,
    }
    assert pairs_swapped(view_of(long_chosen, 5, **DPO)) is None


def test_per_token_lengths_explain_nothing(view_of):
    per_token = {"logps/chosen_per_token": -2.0, "logps/rejected_per_token": -0.2}
    assert pairs_swapped(view_of(per_token, 5, **DPO)) is not None
    assert pairs_swapped(view_of({**per_token, "logps/chosen_per_token": -0.4}, 5, **DPO)) is None


def test_equal_log_probs_are_identical_pairs(view_of):
    alarm = identical_pairs(view_of({"logps/chosen": -3.25, "logps/rejected": -3.25}, 3, **DPO))
    assert (alarm.basis, alarm.onset) == ("exact", (1, 1))
    assert identical_pairs(view_of({"logps/chosen": -3.25, "logps/rejected": -3.26}, 3, **DPO)) is None


def test_pairs_at_chance_after_fifty_updates_are_named(view_of, noisy):
    columns = {"rewards/accuracies": noisy(0.5, 0.05), "learning_rate": 1e-4}
    alarm = accuracy_at_chance(view_of(columns, 60, **DPO))
    assert alarm.severity == "warn"
    assert accuracy_at_chance(view_of(columns, 30, **DPO)) is None
    assert accuracy_at_chance(view_of({**columns, "rewards/accuracies": noisy(0.62, 0.05)}, 60, **DPO)) is None
    few_pairs = {**columns, "rewards/accuracies": noisy(0.5, 0.25)}
    assert accuracy_at_chance(view_of(few_pairs, 60, **DPO)) is None  # 20 rows of 4 pairs cannot tell


def test_a_reward_model_is_asked_the_same(view_of, noisy):
    facts = {"stage": "reward_model"}
    assert pairs_swapped(view_of({"accuracy": noisy(0.2, 0.08)}, 25, **facts)) is not None
    assert pairs_swapped(view_of({"accuracy": noisy(0.52, 0.08)}, 25, **facts)) is None
    same = {"rewards/chosen": 0.11, "rewards/rejected": 0.11}
    assert identical_pairs(view_of(same, 3, **facts)) is not None
    assert identical_pairs(view_of({**same, "rewards/rejected": 0.1101}, 3, **facts)) is None


def test_training_and_held_out_pairs_that_contradict_each_other_are_named(view_of, noisy):
    columns = {
        "rewards/chosen": noisy(lambda step: 0.01 * step, 0.01),
        "rewards/rejected": noisy(lambda step: -0.01 * step, 0.01, seed=1),
        "eval/rewards/chosen": lambda step: {0: 0.0, 20: -0.3, 40: -0.5}.get(step),
        "eval/rewards/rejected": lambda step: {0: 0.0, 20: 0.1, 40: 0.2}.get(step),
    }
    facts = {"stage": "preference", "algorithm": "KTO"}
    assert pairs_swapped(view_of(columns, 45, first=0, **facts)).severity == "critical"
    agree = {**columns, "eval/rewards/chosen": columns["eval/rewards/rejected"], "eval/rewards/rejected": 0.0}
    assert pairs_swapped(view_of(agree, 45, first=0, **facts)) is None


@pytest.mark.parametrize("rule", [pairs_swapped, identical_pairs, accuracy_at_chance])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
