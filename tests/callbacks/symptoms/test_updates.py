"""Updates that do nothing, on made-up histories."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.updates import KINDS, no_update, policy_not_moving, updates_swallowed

LN2 = math.log(2)
BY_ID = {kind.id: kind for kind in KINDS}
DPO = {"stage": "preference", "step0__preference_loss": LN2, "beta": 0.1}


def every_tenth(value):
    return lambda step: value if step == 1 or step % 10 == 0 else None


def test_two_updates_that_change_nothing_are_named(view_of):
    columns = {"update/share_changed": every_tenth(0.0), "learning_rate": 1e-5, "loss": 1.0}
    assert no_update(view_of(columns, 9)) is None  # one look
    alarm = no_update(view_of(columns, 10))
    assert (alarm.severity, alarm.basis) == ("critical", "exact")


def test_a_learning_rate_of_zero_changes_nothing_and_should_not(view_of):
    assert no_update(view_of({"update/share_changed": every_tenth(0.0), "learning_rate": 0.0}, 20)) is None


def test_swallowed_updates_are_named_and_unused_embeddings_are_not(view_of):
    swallowed = updates_swallowed(view_of({"update/share_changed": every_tenth(0.03)}, 10))
    assert swallowed.basis == "exact"
    assert updates_swallowed(view_of({"update/share_changed": every_tenth(0.6)}, 30)) is None
    first_of_lora = {"update/share_changed": [0.05] + [None] * 8 + [1.0]}
    assert updates_swallowed(view_of(first_of_lora, 10)) is None


def test_bf16_weights_are_the_first_suspect(view_of):
    view = view_of({"update/share_changed": every_tenth(0.03)}, 10, weights__dtype="bfloat16")
    assert rank(BY_ID["updates_swallowed"], view)[0].id == "bf16_weights"


def test_weights_that_swallow_updates_fp32_would_hold_are_coarse_whatever_they_are_called(view_of):
    view = view_of({"update/share_changed": every_tenth(0.002)}, 20, weights__dtype="float32", optimizer__lr=1e-6)
    assert rank(BY_ID["updates_swallowed"], view)[0].id == "bf16_weights"


def test_pairs_whose_loss_stays_at_ln_2_are_named(view_of, noisy):
    columns = {"preference_loss": noisy(LN2 - 0.001, 2e-4), "grad_norm": noisy(1.0, 0.1), "learning_rate": 1e-8}
    alarm = policy_not_moving(view_of(columns, 60, **DPO))
    assert alarm.severity == "warn"
    assert alarm.onset == (1, 1)
    moves = {**columns, "update/relative_norm": every_tenth(1e-3)}  # but learns nothing: noisy labels
    assert policy_not_moving(view_of(moves, 60, **DPO)) is None
    learns = {**columns, "preference_loss": noisy(lambda step: LN2 - 0.002 * step, 0.01)}
    assert policy_not_moving(view_of(learns, 60, **DPO)) is None


def test_a_long_warm_up_is_not_held_against_the_policy(view_of, noisy):
    columns = {
        "preference_loss": noisy(LN2, 2e-4),
        "grad_norm": noisy(1.0, 0.1),
        "learning_rate": lambda step: 1e-6 * min(step, 50) / 50,
    }
    assert policy_not_moving(view_of(columns, 70, **DPO)) is None


def test_rl_at_no_distance_is_named_unless_its_reward_rises(view_of, noisy):
    columns = {
        "drift/forward_kl": every_tenth(1e-6),
        "reward": noisy(0.4, 0.04),
        "grad_norm": noisy(1.0, 0.1),
        "learning_rate": 1e-9,
        "update/relative_norm": every_tenth(1e-8),
    }
    alarm = policy_not_moving(view_of(columns, 60, stage="rl", optimizer__lr=1e-9))
    assert alarm.evidence[0].metric == "drift/forward_kl"
    view = view_of(columns, 60, stage="rl", optimizer__lr=1e-9)
    assert rank(BY_ID["policy_not_moving"], view)[0].id == "learning_rate_too_low"
    assert rank(BY_ID["policy_not_moving"], view)[0].setting == "model.optimizer.init_args.lr: 1e-09 → 1e-08"
    rises = {**columns, "reward": noisy(lambda step: 0.4 + 0.005 * step, 0.02)}
    assert policy_not_moving(view_of(rises, 60, stage="rl")) is None
    moves = {**columns, "drift/forward_kl": every_tenth(0.01)}
    assert policy_not_moving(view_of(moves, 60, stage="rl")) is None


def test_a_placeholder_kl_says_nothing(view_of, noisy):
    """Logs of other projects write a KL of 0 where beta is 0."""
    columns = {"kl": 0.0, "reward": noisy(0.4, 0.04), "grad_norm": noisy(1.0, 0.1), "learning_rate": 1e-6}
    assert policy_not_moving(view_of(columns, 60, stage="rl", beta=0)) is None


@pytest.mark.parametrize("rule", [no_update, updates_swallowed, policy_not_moving])
def test_rules_are_silent_without_anything_to_look_at(rule, view_of):
    assert rule(view_of({"my_metric": 1.0}, 60)) is None
