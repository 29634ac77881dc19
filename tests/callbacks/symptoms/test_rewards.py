"""Rewards that rise while answers do not, fall, scatter or are made of one part, on made-up histories."""

import math
import random

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.gains import eval_decline
from lit_rlhf_callbacks.symptoms.rewards import (
    KINDS,
    reward_drift,
    reward_falls,
    reward_hacking,
    reward_term_dominates,
    reward_variance_jump,
)

BY_ID = {kind.id: kind for kind in KINDS}


def ramp(first: float, last: float, num_rows: int = 60):
    return lambda step: first + (last - first) * min(1.0, step / num_rows)


def evaluated(value, error: float = 0.03):
    return {
        "eval/pass_at_1": lambda step: value(step) if step % 10 == 0 else None,
        "eval/pass_at_1_se": lambda step: error if step % 10 == 0 else None,
    }


def test_a_reward_that_rises_while_held_out_answers_fall_is_hacked(view_of, noisy):
    columns = {"reward": noisy(ramp(-1.0, 2.0), 0.1), "reward_std": 0.8} | evaluated(ramp(0.4, 0.02))
    view = view_of(columns, 60, first=0, model__rewards=[{"function": "reward_model"}], beta=0.04)
    assert reward_hacking(view).severity == "critical"
    assert rank(BY_ID["reward_hacking"], view)[0].id == "reward_model_exploited"


def test_three_evaluations_of_a_short_run_are_enough(view_of, noisy):
    columns = {"reward": noisy(ramp(-1.0, 2.0, 30), 0.1), "reward_std": 0.8} | evaluated(ramp(0.23, 0.0, 20))
    assert reward_hacking(view_of(columns, 31, first=0)) is not None


def test_a_verified_reward_points_to_the_verifier(view_of, noisy):
    columns = {"reward": noisy(ramp(0.2, 0.9), 0.03), "reward_std": 0.4} | evaluated(ramp(0.4, 0.1))
    view = view_of(columns, 60, first=0, model__rewards=["graders.mine"], beta=0.04)
    assert rank(BY_ID["reward_hacking"], view)[0].id == "verifier_faulty"


def test_answers_that_rise_too_or_differ_by_noise_only_are_no_hacking(view_of, noisy):
    reward = {"reward": noisy(ramp(0.3, 0.9), 0.03), "reward_std": 0.4}
    assert reward_hacking(view_of(reward | evaluated(ramp(0.3, 0.8)), 60, first=0)) is None
    assert reward_hacking(view_of(reward | evaluated(ramp(0.40, 0.37)), 60, first=0)) is None


def test_answers_that_got_better_and_then_worse_while_the_reward_went_on_are_hacked(view_of, noisy):
    def answers(step):
        return 0.2 + 0.004 * step if step <= 100 else 0.6 - 0.003 * (step - 100)

    reward = {"reward": noisy(ramp(0.2, 1.0, 200), 0.03), "reward_std": 0.4}
    alarm = reward_hacking(view_of(reward | evaluated(answers, 0.03), 201, first=0))
    assert (alarm.severity, alarm.onset) == ("warn", (100, 100))
    flat = {"reward": noisy(ramp(0.2, 0.6, 100), 0.03), "reward_std": 0.4}  # both went as far as they could
    assert reward_hacking(view_of(flat | evaluated(answers, 0.03), 201, first=0)) is None
    assert reward_hacking(view_of(reward | evaluated(answers, 0.1), 201, first=0)) is None  # few samples


def test_the_best_of_many_even_evaluations_is_no_peak(view_of):
    def alarms(seed, share, num, *, logs_error):
        def answers(step):
            draw = random.Random(f"{seed} {step}")
            return sum(draw.random() < share for _ in range(num)) / num if step % 10 == 0 else None

        def error(step):
            value = answers(step)
            return None if value is None else math.sqrt(value * (1 - value) / num)

        held_out = {"eval/pass_at_1": answers} | ({"eval/pass_at_1_se": error} if logs_error else {})
        view = view_of({"reward": 0.5, **held_out}, 401, first=0, num_eval=num)
        decline = eval_decline(view)
        return decline is not None and decline[1].is_down

    for share, num in ((0.03, 64), (0.1, 16), (0.5, 64)):
        for logs_error in (True, False):
            assert sum(alarms(seed, share, num, logs_error=logs_error) for seed in range(40)) <= 1


def test_loops_show_a_hack_where_nobody_evaluates(view_of, noisy):
    reward = {"reward": noisy(ramp(0.3, 0.9), 0.03), "reward_std": 0.4}
    alarm = reward_hacking(view_of(reward | {"completions/repetition": ramp(0.02, 0.8)}, 60))
    assert (alarm.severity, alarm.basis) == ("warn", "inferred")
    assert reward_hacking(view_of(reward | {"completions/repetition": 0.05}, 60)) is None


def test_a_reward_below_its_start_or_far_below_its_best_falls(view_of, noisy):
    falling = {"reward": noisy(ramp(0.5, 0.02), 0.02), "reward_std": 0.4}
    assert "below its start" in reward_falls(view_of(falling, 60)).summary
    lost = {"reward": noisy(lambda step: 0.3 + 0.01 * step if step < 50 else 0.3, 0.02), "reward_std": 0.4}
    assert "below its best" in reward_falls(view_of(lost, 70)).summary


def test_noise_around_a_level_or_a_rise_is_no_fall(view_of, noisy):
    assert reward_falls(view_of({"reward": noisy(0.4, 0.06), "reward_std": 0.4}, 300)) is None
    assert reward_falls(view_of({"reward": noisy(ramp(0.3, 0.9), 0.06), "reward_std": 0.4}, 300)) is None


def test_rewards_that_scatter_are_named_unless_the_run_learns_to_be_right_at_all(view_of, noisy):
    jump = {"reward_std": noisy(lambda step: 0.3 if step < 40 else 3.0, 0.02), "reward": noisy(0.3, 0.05)}
    assert reward_variance_jump(view_of(jump, 80)) is not None
    learns = {"reward_std": ramp(0.05, 0.45), "reward": noisy(ramp(0.01, 0.5), 0.01)}
    assert reward_variance_jump(view_of(learns, 80)) is None
    assert reward_variance_jump(view_of({**jump, "reward_std": noisy(0.3, 0.05)}, 80)) is None


def test_form_that_rises_at_the_cost_of_right_answers_is_named(view_of, noisy):
    columns = {
        "reward": noisy(ramp(0.6, 1.1), 0.02),
        "reward_std": 0.3,
        "rewards/exact_match/mean": noisy(ramp(0.5, 0.1), 0.02),
        "rewards/format/mean": noisy(ramp(0.1, 1.0), 0.02),
    }
    view = view_of(columns, 60)
    assert "exact_match fell" in reward_term_dominates(view).summary
    assert rank(BY_ID["reward_term_dominates"], view)[0].id == "format_gaming"
    both = {**columns, "rewards/exact_match/mean": noisy(ramp(0.5, 0.6), 0.02)}
    assert reward_term_dominates(view_of(both, 60)) is None


def test_form_that_is_learned_where_answers_are_not_is_named(view_of, noisy):
    columns = {
        "reward": noisy(ramp(0.05, 0.12, 40), 0.02),
        "reward_std": 0.4,
        "rewards/format/mean": noisy(ramp(0.1, 0.98, 40), 0.02),
        "rewards/exact_match/mean": noisy(0.02, 0.02),
    }
    assert "earned by form" in reward_term_dominates(view_of(columns, 100)).summary
    assert reward_term_dominates(view_of(columns, 50)) is None  # answers may come later than form
    answers_rise = columns | {"rewards/exact_match/mean": noisy(ramp(0.02, 0.2, 100), 0.02)}
    assert reward_term_dominates(view_of(answers_rise, 100)) is None
    summed = columns | {"reward": noisy(ramp(0.12, 1.0, 40), 0.03)}  # form alone makes the reward rise
    assert "earned by form" in reward_term_dominates(view_of(summed, 100)).summary
    cannot_be_told = columns | {"rewards/exact_match/mean": noisy(0.2, 0.2)}
    assert reward_term_dominates(view_of(cannot_be_told, 100)) is None


def test_a_reward_that_moves_in_a_run_without_evaluation_is_only_said(view_of, noisy):
    columns = {"reward": noisy(ramp(0.3, 0.9), 0.03), "reward_std": 0.4}
    assert reward_drift(view_of(columns, 60)).severity == "info"
    assert reward_drift(view_of(columns | evaluated(ramp(0.3, 0.8)), 60, first=0)) is None
    assert reward_drift(view_of({**columns, "reward": noisy(0.3, 0.03)}, 60)) is None
