"""A completion without a reward is dropped and counted; what is left is trained as if it had never been."""

import pytest
import torch
from short_runs import deviation, rows_by_content, sometimes_none


def sometimes_raising(completion_ids):
    if any(sum(ids) % 5 == 0 for ids in completion_ids):
        raise ValueError("cannot be scored")
    return [sum(ids) % 7 / 6 for ids in completion_ids]


def test_rows_without_reward_are_not_trained(algorithm, run):
    seen = run(algorithm, rewards=[sometimes_none], max_refill_rounds=0, accumulate=2, beta=0.1)
    num_dropped = seen.metrics[0]["rewards/num_dropped"]
    rows = rows_by_content(seen)
    assert 0 < num_dropped < 8
    assert len(rows) <= 16 - num_dropped
    for (_, ids), (row,) in rows.items():
        assert sum(ids[-len(row["logps"]) :]) % 5 != 0
        assert torch.isfinite(row["advantages"]).all()
    assert all(torch.isfinite(g).all() for g in seen.gradients[0].values())


def test_a_failed_reward_that_may_be_skipped_is_as_one_that_does_not_apply(algorithm, run):
    none = run(algorithm, rewards=[sometimes_none], accumulate=2, beta=0.1)
    with pytest.warns(UserWarning, match="'sometimes_raising' raised ValueError: cannot be scored"):
        skipped = run(algorithm, rewards=[sometimes_raising], reward_on_error="skip", accumulate=2, beta=0.1)
    assert deviation(none, skipped) < 1e-6
    assert skipped.metrics[0]["rewards/num_dropped"] == none.metrics[0]["rewards/num_dropped"]


def test_advantages_compare_what_is_left(run):
    seen = run("RLOO", rewards=[sometimes_none])
    groups = {}
    for (prompt, _), (row,) in rows_by_content(seen).items():
        groups.setdefault(prompt, []).append((float(row["rewards"]), float(row["advantages"][0])))
    assert {len(group) for group in groups.values()} != {4}
    for group in groups.values():
        for reward, advantage in group:
            others = (sum(other for other, _ in group) - reward) / (len(group) - 1)
            assert advantage == pytest.approx(reward - others, abs=1e-5)


def test_a_group_of_one_that_is_left_is_dropped_where_groups_are_compared(run):
    """There is nothing to compare it with."""

    def first_token_decides(completion_ids):
        return [0.5 + ids[0] % 3 / 2 if ids[0] % 2 else None for ids in completion_ids]

    alone = [run(name, rewards=[first_token_decides]) for name in ("Reinforce", "GRPO")]
    counts = [[prompt for prompt, _ in rows_by_content(seen)] for seen in alone]
    assert any(counts[0].count(prompt) == 1 for prompt in counts[0])
    assert all(counts[1].count(prompt) > 1 for prompt in counts[1])
