"""Groups without contrast, on made-up histories."""

import math

from lit_rlhf_callbacks import symptoms
from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.groups import (
    KINDS,
    advantage_collapse,
    advantage_spike,
    dead_reward,
    reward_std_death,
    zero_contrast,
)

BY_ID = {kind.id: kind for kind in KINDS}
FACTS = {"window__num_completions": 64, "model__group_size": 8}


def ramp(first: float, last: float, num_rows: int = 60):
    return lambda step: first + (last - first) * min(1.0, step / num_rows)


def test_a_task_that_is_too_hard_is_named_with_its_cause(view_of, noisy):
    columns = {"frac_reward_zero_std": noisy(0.85, 0.08), "reward": noisy(0.03, 0.01), "reward_std": 0.05}
    view = view_of(columns, 30, **FACTS)
    assert zero_contrast(view).severity == "warn"
    assert rank(BY_ID["zero_contrast"], view)[0].id == "task_too_hard"


def test_a_task_that_is_too_easy_from_the_start_is_told_from_one_that_was_learned(view_of, noisy):
    easy = {"frac_reward_zero_std": noisy(0.8, 0.08), "reward": noisy(0.95, 0.01), "reward_std": 0.1}
    view = view_of(easy, 30, **FACTS)
    assert zero_contrast(view).severity == "warn"
    assert rank(BY_ID["zero_contrast"], view)[0].id == "task_too_easy"
    learned = {
        "frac_reward_zero_std": ramp(0.05, 0.9),
        "reward": noisy(ramp(0.4, 0.95), 0.02),
        "reward_std": ramp(0.4, 0.1),
    }
    assert zero_contrast(view_of(learned, 80, **FACTS)).severity == "info"


def test_contrast_that_is_lost_while_nothing_is_learned_is_the_entropy(view_of, noisy):
    columns = {
        "frac_reward_zero_std": ramp(0.1, 0.99),
        "reward": noisy(0.4, 0.02),
        "reward_std": ramp(0.4, 0.02),
        "entropy": ramp(0.8, 0.01),
    }
    view = view_of(columns, 80, **FACTS)
    assert zero_contrast(view).severity == "critical"
    assert rank(BY_ID["zero_contrast"], view)[0].id == "entropy_collapse"


def test_a_few_equal_groups_are_healthy(view_of, noisy):
    columns = {"frac_reward_zero_std": noisy(0.4, 0.1), "reward": noisy(0.5, 0.03), "reward_std": 0.3}
    assert zero_contrast(view_of(columns, 60, **FACTS)) is None


def test_three_rows_of_equal_groups_are_enough_also_when_every_tenth_is_logged(view_of):
    columns = {"frac_reward_zero_std": 1.0, "reward": [0.2, 0.1, 0.3], "reward_std": 0.0}
    alarm = zero_contrast(view_of(columns, 3, every=10, **FACTS))
    assert (alarm.severity, alarm.basis, alarm.onset) == ("critical", "exact", (1, 1))
    assert zero_contrast(view_of(columns, 2, **FACTS)) is None


def test_one_group_per_row_needs_more_rows(view_of):
    columns = {"frac_reward_zero_std": 1.0, "reward": lambda step: step % 2, "reward_std": 0.0}
    facts = {"window__num_completions": 8, "model__group_size": 8}
    assert zero_contrast(view_of(columns, 5, **facts)) is None
    assert zero_contrast(view_of(columns, 30, **facts)) is not None


def test_a_dead_reward_is_named_within_three_rows(view_of):
    columns = {"reward": 0.5, "reward_std": 0.0, "frac_reward_zero_std": 1.0}
    view = view_of(columns, 3, every=10, **FACTS)
    alarm = dead_reward(view)
    assert (alarm.severity, alarm.basis, alarm.onset) == ("critical", "exact", (1, 1))
    assert rank(BY_ID["dead_reward"], view)[0].id == "reward_constant"


def test_rewards_that_differ_within_or_between_prompts_are_alive(view_of):
    assert dead_reward(view_of({"reward": 0.5, "reward_std": 0.3}, 10, **FACTS)) is None
    assert dead_reward(view_of({"reward": lambda step: step % 2, "reward_std": 0.0}, 10, **FACTS)) is None


def test_without_groups_a_repeated_mean_is_chance_unless_it_is_zero_or_goes_on(view_of):
    assert dead_reward(view_of({"reward": [0.5, 0.5, 0.5]}, 3)) is None
    assert dead_reward(view_of({"reward": [0.0, 0.0, 0.0]}, 3)) is not None
    assert dead_reward(view_of({"reward": 0.5}, 6)) is not None


def test_rewards_that_are_all_missing_are_dead(view_of):
    view = view_of({"rewards/num_dropped": 64.0}, 3, **FACTS)
    assert dead_reward(view).basis == "exact"
    assert rank(BY_ID["dead_reward"], view)[0].id == "reward_none"
    assert dead_reward(view_of({"rewards/num_dropped": 3.0, "reward": [0.1, 0.2, 0.3]}, 3, **FACTS)) is None


def test_advantages_that_shrink_are_named_unless_the_task_is_learned(view_of, noisy):
    shrinking = {"advantages/std": ramp(0.9, 0.01, 50), "reward": noisy(0.3, 0.01), "reward_std": 0.4}
    assert advantage_collapse(view_of(shrinking, 80)) is not None
    learned = {**shrinking, "reward": noisy(ramp(0.3, 0.95), 0.01)}
    assert advantage_collapse(view_of(learned, 80)) is None
    assert advantage_collapse(view_of({**shrinking, "advantages/std": noisy(0.9, 0.1)}, 80)) is None


def test_advantages_that_grow_are_named_unless_the_run_gains(view_of, noisy):
    grown = {"advantages/std": noisy(lambda step: 0.3 if step < 40 else 2.0, 0.02), "reward": noisy(0.3, 0.01)}
    assert advantage_spike(view_of(grown, 80)) is not None
    assert advantage_spike(view_of({**grown, "advantages/std": noisy(0.3, 0.1)}, 80)) is None
    gains = {**grown, "reward": noisy(ramp(0.3, 0.9), 0.01), "reward_std": 0.4}
    assert advantage_spike(view_of(gains, 80)) is None


def test_rewards_that_stop_differing_are_named_unless_they_are_all_right(view_of, noisy):
    dying = {"reward_std": ramp(0.4, 0.01, 50), "reward": noisy(0.35, 0.01)}
    assert reward_std_death(view_of(dying, 80)) is not None
    assert reward_std_death(view_of({**dying, "reward": noisy(ramp(0.35, 0.98), 0.01)}, 80)) is None


def test_advantages_that_jump_are_named_whatever_the_reward_does(view_of, noisy):
    jump = {"advantages/std": noisy(lambda step: 0.5 if step < 30 else 12.0, 0.03), "reward": noisy(0.5, 0.1)}
    assert "jumped" in advantage_spike(view_of(jump, 34)).summary
    assert rank(BY_ID["advantage_spike"], view_of(jump, 34))[0].id == "reward_scale"
    grows = {**jump, "advantages/std": noisy(ramp(0.2, 1.0), 0.02), "reward": noisy(ramp(0.1, 0.9), 0.02)}
    assert advantage_spike(view_of(grows, 60)) is None


def test_the_groups_own_rewards_say_whether_a_task_is_easy(view_of):
    columns = {"frac_reward_zero_std": 1.0, "reward": 1.0, "reward_std": 0.0, "eval/pass_at_1": 0.2}
    assert rank(BY_ID["zero_contrast"], view_of(columns, 5, **FACTS))[0].id != "task_too_hard"


def test_rewards_that_die_with_the_weights_are_a_consequence():
    """What a policy of NaN weights samples is worth nothing: the reward function is not to blame."""
    diagnosis = Diagnosis(symptoms.RULES, symptoms.KINDS, {})
    for step in range(1, 41):
        if step < 20:
            row = {"reward": 0.4 + 0.01 * (step % 7), "reward_std": 0.3, "grad_norm": 1.0, "frac_reward_zero_std": 0.1}
        else:
            row = {"reward": 0.0, "reward_std": 0.0, "grad_norm": math.nan, "frac_reward_zero_std": 1.0}
        diagnosis.add_row(step, row)
    assert diagnosis.findings["dead_reward"].explained_by == "not_a_number"
    grave = [finding for finding in diagnosis.active() if finding.severity != "info"]
    assert [finding.kind for finding in grave if finding.explained_by is None] == ["not_a_number"]


def test_rows_of_two_groups_that_are_often_equal_have_not_collapsed(view_of, noisy):
    """A healthy run of 700 updates: three rows in five are 0, and the median with them; the mean is not."""

    def spread(step):
        return 0.0 if step > 40 and step % 5 < 3 else 0.8

    columns = {"reward": noisy(ramp(0.4, 0.65), 0.1), "advantages/std": spread, "reward_std": spread}
    assert advantage_collapse(view_of(columns, 80)) is None
    assert reward_std_death(view_of(columns, 80)) is None


def test_a_few_single_completions_may_all_be_wrong_by_chance(view_of):
    """Four completions a row, one in five right: three rows without any come once in fifteen times."""
    facts = {"window__num_completions": 4, "model__group_size": 1}

    def rewards(since):
        return lambda step: 0.0 if step > since else 0.25 * (step % 5 < 4)

    columns = {"reward": rewards(40), "rewards/std": lambda step: 0.0 if step > 40 else 0.4}
    assert dead_reward(view_of(columns, 43, **facts)) is None
    assert dead_reward(view_of(columns, 55, **facts)) is not None
    always = {"reward": 0.0, "rewards/std": 0.0}
    assert dead_reward(view_of(always, 4, **facts)) is None
    assert dead_reward(view_of(always, 14, **facts)) is not None
    assert dead_reward(view_of(always, 4, **{**facts, "window__num_completions": 32})) is not None
