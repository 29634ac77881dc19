"""Policies that become certain, scatter or run away, on made-up histories."""

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.gains import is_falling
from lit_rlhf_callbacks.symptoms.policy import (
    KINDS,
    clip_asymmetry,
    clip_saturation,
    entropy_collapse,
    entropy_explosion,
    kl_explosion,
    stale_experience,
    unleashed_reward,
)

BY_ID = {kind.id: kind for kind in KINDS}


def ramp(first: float, last: float, num_rows: int = 60):
    return lambda step: first + (last - first) * min(1.0, step / num_rows)


def decay(first: float, last: float, num_rows: int = 40):
    return lambda step: first * (last / first) ** min(1.0, step / num_rows)


HELD_OUT = {"eval/pass_at_1_se": lambda step: 0.03 if step % 10 == 0 else None}


def evaluated(value):
    return {"eval/pass_at_1": lambda step: value(step) if step % 10 == 0 else None, **HELD_OUT}


def test_certainty_without_gain_is_collapse(view_of, noisy):
    columns = {"entropy": decay(2.2, 0.02), "reward": noisy(0.3, 0.02), "reward_std": 0.4}
    assert "has not risen" in entropy_collapse(view_of(columns, 60)).summary


def test_a_run_that_learns_becomes_certain_and_that_is_no_fault(view_of, noisy):
    columns = {"entropy": decay(0.45, 0.02), "reward": noisy(ramp(0.4, 0.95), 0.03), "reward_std": ramp(0.4, 0.1)}
    assert entropy_collapse(view_of(columns, 60)) is None
    assert entropy_collapse(view_of(columns | evaluated(ramp(0.4, 0.9)), 60)) is None


def test_a_certain_run_that_has_stopped_learning_halfway_has_collapsed(view_of, noisy):
    stuck = {"entropy": decay(0.6, 0.005, 100), "reward": noisy(ramp(0.2, 0.55, 100), 0.03), "reward_std": 0.5}
    assert "nothing has been gained" in entropy_collapse(view_of(stuck, 200)).summary
    goes_on = stuck | {"reward": noisy(ramp(0.2, 0.8, 200), 0.03)}
    assert entropy_collapse(view_of(goes_on, 200)) is None
    solved = stuck | {"reward": noisy(ramp(0.2, 0.95, 100), 0.02)}
    assert entropy_collapse(view_of(solved, 200)) is None


def test_a_gain_that_hides_in_noisy_rows_is_a_gain(view_of, noisy):
    """Sixteen completions a row: three rows say little of where a reward began."""
    columns = {"entropy": decay(0.6, 0.04, 300), "reward": noisy(ramp(0.45, 0.75, 300), 0.2), "reward_std": 0.4}
    assert not any(entropy_collapse(view_of(columns, num_rows)) for num_rows in range(310, 400, 10))


def test_a_kl_that_grows_while_nothing_is_gained_any_more_is_named(view_of, noisy):
    paid = {"kl": lambda step: 0.02 * 1.03**step, "entropy": 0.8, "reward": noisy(ramp(0.2, 0.55, 60), 0.02)}
    assert "nothing is gained" in kl_explosion(view_of({**paid, "reward_std": 0.45}, 180)).summary
    gains = {**paid, "reward": noisy(ramp(0.2, 0.9, 180), 0.02), "reward_std": 0.45}
    assert kl_explosion(view_of(gains, 180)) is None
    solved = {**paid, "reward": noisy(ramp(0.2, 0.95, 60), 0.02), "reward_std": 0.45}
    assert kl_explosion(view_of(solved, 180)) is None


def test_ten_rows_below_the_thirty_before_them_are_no_fall(view_of, noisy):
    columns = {"reward": noisy(0.6, 0.2), "reward_std": 0.3, "kl": ramp(0.01, 1.5, 100), "entropy": 0.4}
    assert sum(is_falling(view_of(columns, num_rows)) for num_rows in range(40, 240, 5)) == 0


def test_a_fall_that_is_not_to_a_tenth_is_no_collapse(view_of, noisy):
    assert entropy_collapse(view_of({"entropy": decay(2.2, 0.4), "reward": noisy(0.3, 0.02)}, 60)) is None


def test_certainty_that_costs_held_out_answers_or_makes_loops_is_collapse(view_of, noisy):
    columns = {"entropy": decay(0.45, 0.02), "reward": noisy(ramp(0.4, 0.95), 0.03), "reward_std": 0.4}
    assert "held-out" in entropy_collapse(view_of(columns | evaluated(ramp(0.4, 0.1)), 60)).summary
    loops = {**columns, "completions/repetition": ramp(0.0, 0.7)}
    assert "repeats" in entropy_collapse(view_of(loops, 60)).summary


def test_a_reward_that_was_gained_and_lost_makes_it_critical(view_of, noisy):
    rise_and_fall = noisy(lambda step: 0.3 + 0.01 * step if step < 40 else 0.2, 0.02)
    columns = {"entropy": decay(0.45, 0.001), "reward": rise_and_fall, "reward_std": 0.4}
    assert entropy_collapse(view_of(columns, 60)).severity == "critical"


def test_what_favours_short_answers_is_named_first(view_of, noisy):
    columns = {
        "entropy": decay(2.0, 0.01),
        "reward": noisy(0.3, 0.02),
        "rewards/length_correlation": -0.6,
        "completions/empty_ratio": 0.5,
        "grad_norm": 1.0,
    }
    ranked = rank(BY_ID["entropy_collapse"], view_of(columns, 60, beta=0.04))
    assert ranked[0].id == "short_answer_reward"
    plain = {"entropy": decay(2.0, 0.01, 10), "reward": noisy(0.3, 0.02), "grad_norm": ramp(1.0, 5.0)}
    assert rank(BY_ID["entropy_collapse"], view_of(plain, 60, optimizer__lr=4e-3))[0].id == "learning_rate_too_high"


def test_scattering_is_named_when_the_reward_falls_with_it(view_of, noisy):
    falling = {"entropy": ramp(0.4, 3.0), "reward": noisy(ramp(0.5, 0.02), 0.02), "reward_std": 0.4}
    assert entropy_explosion(view_of(falling, 60)).severity == "critical"
    explores = {"entropy": ramp(0.4, 1.5), "reward": noisy(ramp(0.3, 0.8), 0.02), "reward_std": 0.4}
    assert entropy_explosion(view_of(explores, 60)) is None
    assert entropy_explosion(view_of({**falling, "entropy": noisy(0.4, 0.05)}, 60)) is None


def test_an_entropy_bonus_is_the_first_suspect_where_there_is_one(view_of, noisy):
    falling = {"entropy": ramp(0.4, 3.0), "reward": noisy(ramp(0.5, 0.02), 0.02), "reward_std": 0.4}
    ranked = rank(BY_ID["entropy_explosion"], view_of(falling, 60, model__entropy_coef=0.1))
    assert (ranked[0].id, ranked[0].setting) == ("entropy_bonus_too_high", "model.entropy_coef: 0.1 → 0.01")


def test_a_kl_that_runs_away_is_named_and_one_that_pays_is_not(view_of, noisy):
    away = {"kl": lambda step: 0.001 * 1.2**step, "entropy": 0.5, "reward": noisy(ramp(0.5, 0.05), 0.02)}
    assert kl_explosion(view_of({**away, "reward_std": 0.4}, 60)).severity == "critical"
    pays = {**away, "reward": noisy(ramp(0.3, 0.9), 0.02), "reward_std": 0.4}
    assert kl_explosion(view_of(pays, 60)) is None
    small = {**away, "kl": lambda step: 0.001 * step}
    assert kl_explosion(view_of({**small, "reward_std": 0.4}, 60)) is None


def test_without_a_reference_the_drift_from_the_start_stands_in(view_of, noisy):
    columns = {
        "drift/forward_kl": lambda step: 0.5 * step if step % 10 == 0 else None,
        "entropy": 0.5,
        "reward": noisy(ramp(0.5, 0.05), 0.02),
        "reward_std": 0.4,
    }
    assert kl_explosion(view_of(columns, 60)).evidence[0].metric == "drift/forward_kl"


def test_a_learned_reward_without_a_kl_is_named_from_the_settings(view_of):
    rewards = [{"function": "reward_model", "model": "runs/rm"}]
    assert unleashed_reward(view_of({"reward": 0.1}, 1, beta=0.0, model__rewards=rewards)) is not None
    assert unleashed_reward(view_of({"reward": 0.1}, 1, beta=0.04, model__rewards=rewards)) is None
    assert unleashed_reward(view_of({"reward": 0.1}, 1, beta=0.0, model__rewards=["exact_match"])) is None
    assert unleashed_reward(view_of({"reward": 0.1}, 1)) is None


def test_clipping_counts_where_there_is_something_to_clip(view_of, noisy):
    every_other = noisy(0.4, 0.02)
    columns = {"clip_ratio/region_mean": lambda step: every_other(step) if step % 2 else 0.0}
    assert clip_saturation(view_of(columns, 40)) is not None
    assert clip_saturation(view_of({"clip_ratio/region_mean": noisy(0.1, 0.02)}, 40)) is None
    assert clip_saturation(view_of(columns, 40, algorithm="GSPO")) is None


def test_stale_rollouts_are_the_suspect_where_nothing_should_be_clipped(view_of):
    facts = {"model__windows_per_phase": 1, "model__epochs_per_phase": 1}
    ranked = rank(BY_ID["clip_saturation"], view_of({"clip_ratio/region_mean": 0.4}, 40, **facts))
    assert ranked[0].id == "stale_rollouts"


def test_one_sided_clipping_is_only_said(view_of):
    columns = {"clip_ratio/low_mean": 0.2, "clip_ratio/high_mean": 0.01}
    assert clip_asymmetry(view_of(columns, 40)).severity == "info"
    assert clip_asymmetry(view_of({"clip_ratio/low_mean": 0.2, "clip_ratio/high_mean": 0.15}, 40)) is None


def test_a_first_update_whose_ratio_is_no_longer_one_is_named(view_of):
    def alternates(step: int) -> float:
        return 1.0 if step % 2 else 1.3

    stale = view_of({"ratio/max": lambda step: alternates(step) if step < 20 else 1.4}, 40)
    assert (stale_experience(stale).kind, stale_experience(stale).basis) == ("ratio_not_one", "inferred")
    assert stale_experience(view_of({"ratio/max": alternates}, 40)) is None
    assert stale_experience(view_of({"ratio/max": 1.4}, 40)) is None  # never was: settings, or another check's business
