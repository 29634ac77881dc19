from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from lit_rlhf.functional import baseline_advantages, group_stats, maxrl_advantages, returns_to_go, whiten

# Two prompts, their completions interleaved: groups are told by id, never by position.
REWARDS = torch.tensor([1.0, 10.0, 0.0, 30.0, 2.0])
GROUPS = torch.tensor([7, 3, 7, 3, 7])


def on_two_ranks(function, *halves):
    """Call `function(rank's half, reduce)` in two threads whose `reduce` sums over both, like an all-reduce."""
    barrier, slots = Barrier(2, timeout=10), [None, None]

    def run(rank):
        def reduce(tensor):
            slots[rank] = tensor
            barrier.wait()
            total = slots[0] + slots[1]
            barrier.wait()
            return total

        return function(halves[rank], reduce)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_group_stats_by_hand():
    mean, std, size = group_stats(REWARDS, GROUPS)
    torch.testing.assert_close(mean, torch.tensor([1.0, 20.0, 1.0, 20.0, 1.0]))
    torch.testing.assert_close(std, torch.tensor([1.0, 200**0.5, 1.0, 200**0.5, 1.0]))
    assert size.tolist() == [3, 2, 3, 2, 3]


@pytest.mark.parametrize(
    ("baseline", "scale", "expected"),
    [
        ("none", "none", [1.0, 10.0, 0.0, 30.0, 2.0]),
        ("group_mean", "none", [0.0, -10.0, -1.0, 10.0, 1.0]),
        ("leave_one_out", "none", [0.0, -20.0, -1.5, 20.0, 1.5]),
        ("group_mean", "group", [0.0, -10 / 200**0.5, -1.0, 10 / 200**0.5, 1.0]),
        ("group_mean", "batch", [0.0, -10 / 158.8**0.5, -1 / 158.8**0.5, 10 / 158.8**0.5, 1 / 158.8**0.5]),
    ],
)
def test_baselines_by_hand(baseline, scale, expected):
    advantages = baseline_advantages(REWARDS, GROUPS, baseline=baseline, scale=scale, eps=0.0)
    torch.testing.assert_close(advantages, torch.tensor(expected))


def test_leave_one_out_is_the_mean_of_the_others():
    rewards, groups = torch.rand(8), torch.zeros(8, dtype=torch.long)
    advantages = baseline_advantages(rewards, groups, baseline="leave_one_out", scale="none")
    for sample in range(8):
        others = torch.cat([rewards[:sample], rewards[sample + 1 :]])
        torch.testing.assert_close(advantages[sample], rewards[sample] - others.mean())


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("num", [3, 6, 7])
def test_equal_rewards_give_exactly_no_advantage(scale, num):
    """Rounding noise divided by a standard deviation of rounding noise would train on nothing."""
    groups = torch.zeros(num, dtype=torch.long)
    advantages = baseline_advantages(torch.full((num,), 0.1), groups, baseline="group_mean", scale=scale)
    assert (advantages == 0).all()


def test_order_of_samples_does_not_matter():
    order = torch.tensor([3, 0, 4, 2, 1])
    settings = {"baseline": "group_mean", "scale": "group"}
    expected = baseline_advantages(REWARDS, GROUPS, **settings)[order]
    torch.testing.assert_close(baseline_advantages(REWARDS[order], GROUPS[order], **settings), expected)


@pytest.mark.parametrize(("baseline", "scale"), [("group_mean", "none"), ("leave_one_out", "none"), ("none", "group")])
def test_group_of_one_is_refused(baseline, scale):
    with pytest.raises(ValueError, match="group 5 has one completion"):
        baseline_advantages(torch.rand(3), torch.tensor([4, 5, 4]), baseline=baseline, scale=scale)


def test_group_of_one_is_fine_without_group_statistics():
    advantages = baseline_advantages(torch.tensor([2.0, 4.0]), torch.tensor([0, 1]), baseline="none", scale="batch")
    torch.testing.assert_close(advantages, torch.tensor([2.0, 4.0]) / (2**0.5 + 1e-4))


def test_batch_scale_is_the_same_on_two_ranks():
    rewards, groups = torch.rand(10), torch.arange(10) // 2
    settings = {"baseline": "group_mean", "scale": "batch"}
    expected = baseline_advantages(rewards, groups, **settings)
    rows = [torch.arange(4), torch.arange(4, 10)]
    halves = on_two_ranks(
        lambda own, reduce: baseline_advantages(rewards[own], groups[own], **settings, reduce=reduce), *rows
    )
    torch.testing.assert_close(torch.cat(halves), expected)


def test_maxrl_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    groups = torch.tensor([0, 0, 1, 1, 0, 0])
    expected = [1 / 3, -1.0, 0.0, 0.0, 1 / 3, 1 / 3]  # group 0 succeeds 3 times in 4, group 1 never
    torch.testing.assert_close(maxrl_advantages(rewards, groups), torch.tensor(expected))


def test_maxrl_refuses_negative_rewards():
    with pytest.raises(ValueError, match=r"not negative, got -0\.5"):
        maxrl_advantages(torch.tensor([1.0, -0.5]), torch.tensor([0, 0]))


def test_maxrl_refuses_a_group_of_one():
    with pytest.raises(ValueError, match="group 2 has one completion"):
        maxrl_advantages(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 2]))


def test_whiten_by_hand():
    values = torch.tensor([[1.0, 2.0, 50.0], [3.0, 6.0, 50.0]])
    mask = torch.tensor([[True, True, False], [True, True, False]])
    expected = torch.tensor([[-2.0, -1.0, 0.0], [0.0, 3.0, 0.0]]) / (14 / 3) ** 0.5
    torch.testing.assert_close(whiten(values, mask), expected)
    torch.testing.assert_close(whiten(values, mask, shift_mean=False), (expected + 3) * mask)


@pytest.mark.parametrize("split", [0, 3, 5, 8])
def test_whitening_on_two_ranks_equals_one(split):
    """Also when a rank has no value at all (split 0 and 8)."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 4, generator=generator)
    mask = torch.rand(8, 4, generator=generator) < 0.7
    rows = [torch.arange(split), torch.arange(split, 8)]
    halves = on_two_ranks(lambda own, reduce: whiten(values[own], mask[own], reduce=reduce), *rows)
    torch.testing.assert_close(torch.cat(halves), whiten(values, mask))


def test_whitening_keeps_its_digits_far_from_zero():
    """Mean of squares minus square of the mean would cancel here, in fp32 to a negative variance."""
    values = 4096.0 + torch.tensor([-0.5, 0.0, 0.5])
    torch.testing.assert_close(whiten(values, torch.ones(3, dtype=torch.bool)), torch.tensor([-1.0, 0.0, 1.0]))


@pytest.mark.parametrize("num", [0, 1])
def test_whitening_next_to_nothing_is_zero(num):
    mask = torch.arange(4) < num
    assert (whiten(torch.full((4,), 7.0), mask) == 0).all()


def test_returns_to_go_by_hand():
    rewards = torch.tensor([[5.0, 1.0, 2.0, 7.0], [0.0, 0.0, 0.0, 3.0]])
    mask = torch.tensor([[False, True, True, False], [True, True, True, True]])
    assert returns_to_go(rewards, mask).tolist() == [[0, 3, 2, 0], [3, 3, 3, 3]]
