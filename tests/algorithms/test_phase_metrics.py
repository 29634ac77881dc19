"""What is told of a rollout: over everything sampled, under TRL's names, each with its own denominator."""

import pytest

from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.phase_metrics import add_phase_metrics

ROWS = [(7, 1.0, 4, False), (7, 0.0, 10, True), (7, 0.5, 1, False), (2, 0.5, 3, False), (2, 0.5, 5, False)]


def measure(rollout, group_size):
    meter = WindowMeter()
    add_phase_metrics(meter, rollout, ["match"], group_size)
    return meter.compute()


def test_values(make_rollout):
    metrics = measure(make_rollout(ROWS), 3)
    assert metrics == pytest.approx(
        {
            "reward": 0.5,
            "rewards/match/mean": 0.5,
            "reward_std": (0.5 + 0.0) / 2,  # every group counts once, whatever its size
            "frac_reward_zero_std": 0.5,
            "completions/mean_length": 23 / 5,
            "completions/max_length": 10,
            "completions/mean_terminated_length": 13 / 4,
            "completions/clipped_ratio": 1 / 5,
            "num_tokens": 23 + 5 * 2,
            "rewards/num_dropped": 0,
        }
    )


def test_a_completion_without_reward_counts_in_lengths_only(make_rollout):
    metrics = measure(make_rollout([*ROWS, (2, None, 40, True)]), 3)
    assert metrics["reward"] == metrics["rewards/match/mean"] == 0.5
    assert metrics["rewards/num_dropped"] == 1
    assert metrics["completions/max_length"] == 40
    assert metrics["frac_reward_zero_std"] == 0.5


def test_single_completions_have_no_group_metrics(make_rollout):
    metrics = measure(make_rollout([(1, 1.0, 2, False), (2, 0.0, 2, False)]), 1)
    assert not {"reward_std", "frac_reward_zero_std"} & set(metrics)


def test_nothing_sampled_has_no_means(make_rollout):
    """A rank without prompts takes part with nothing."""
    assert measure(make_rollout([]), 4) == {"num_tokens": 0.0, "rewards/num_dropped": 0.0}
