"""The checks that are functions of a few numbers, on numbers made by hand."""

import math

import pytest
import torch

from lit_rlhf_callbacks.checks.devices import check_architecture, check_kernels
from lit_rlhf_callbacks.checks.direction import Direction, check_direction, update_direction
from lit_rlhf_callbacks.checks.kl import check_kl_estimator, kl_sums
from lit_rlhf_callbacks.checks.overlap import check_overlap
from lit_rlhf_callbacks.checks.ranks import check_ranks, hash_tensor
from lit_rlhf_callbacks.checks.repeated import _signs
from lit_rlhf_callbacks.checks.resume import (
    check_data_order,
    check_learning_rate,
    check_optimizer_state,
    check_random_state,
    hash_state,
)
from lit_rlhf_callbacks.checks.reward_model import PairCounts, check_length_only, check_order_at_start, count_pairs
from lit_rlhf_callbacks.checks.sampler import check_sampler
from lit_rlhf_callbacks.checks.schedule import has_signal
from lit_rlhf_callbacks.checks.start_values import check_start_likelihood, check_start_values
from lit_rlhf_callbacks.checks.tokens import affordable_rows, join_tokens
from lit_rlhf_callbacks.checks.weights import Change, check_trainable, check_update, measure_change, sample_weights

WHEEL = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.mark.parametrize(
    ("capability", "arch_list", "runs"),
    [
        ((8, 0), WHEEL, True),
        ((8, 9), WHEEL, True),  # runs kernels for 8.6
        ((9, 0), WHEEL, True),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90a"], False),
        ((12, 0), WHEEL, False),  # another major version
        ((12, 0), [*WHEEL, "compute_90"], True),  # compiled at load time
        ((6, 1), WHEEL, False),
        ((8, 0), ["sm_86"], False),  # a newer minor version
        ((12, 1), ["sm_120"], True),
        ((8, 0), [], False),
    ],
)
def test_architectures(capability, arch_list, runs):
    assert (check_architecture(capability, arch_list).status == "ok") == runs


def test_the_wheel_to_install_is_named():
    assert "CUDA 12.8 or newer" in check_architecture((12, 0), WHEEL).summary
    assert "CUDA 12.6, the last" in check_architecture((6, 1), WHEEL).summary


def test_kernels_of_this_processor():
    assert check_kernels(torch.device("cpu")).status == "ok"


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_direction_of_an_update():
    mask, advantages = torch.ones(16, 5, dtype=torch.bool), noise(16)
    forward = update_direction(0.1 * advantages[:, None] + 0.02 * noise(16, 5, seed=1), advantages, mask)
    backward = update_direction(-0.1 * advantages[:, None] + 0.02 * noise(16, 5, seed=1), advantages, mask)
    lost = update_direction(0.02 * noise(16, 5, seed=1), advantages, mask)
    assert forward.alignment > 0.9
    assert backward.is_backwards
    assert not lost.is_backwards
    assert update_direction(noise(16, 5), torch.zeros(16), mask) is None


def test_pairs_that_move_together_are_judged_by_their_difference():
    signs, pairs = torch.tensor([1.0, -1.0]).repeat(8), torch.arange(16) // 2
    change = (5 + noise(8, 1).repeat_interleave(2, 0) - 0.1 * signs[:, None]).expand(16, 4)
    mask = torch.ones(16, 4, dtype=torch.bool)
    assert not update_direction(change, signs, mask).is_backwards  # drowned
    assert update_direction(change, signs, mask, clusters=pairs).is_backwards


def test_one_look_backwards_is_not_enough():
    back, forth = Direction(-1, 0.1, -0.9, 0.01), Direction(1, 0.1, 0.9, 0.01)
    assert check_direction([back], smallest=1e-6).status == "ok"
    assert check_direction([back, forth], smallest=1e-6).status == "ok"
    assert check_direction([back, forth, back], smallest=1e-6).cause == "advantage_sign"
    assert check_direction([back, back], smallest=1e-6, has_pairs=True).cause == "pairs_swapped"
    assert check_direction([back._replace(movement=3.0)] * 2, smallest=1e-6).cause == "learning_rate_too_high"
    assert check_direction([back._replace(movement=1e-9)] * 2, smallest=1e-6).status == "unknown"
    assert check_direction([None], smallest=1e-6).status == "unknown"


def test_kl_estimators_are_told_apart():
    logps, ref_logps = noise(1, 400) - 2, noise(1, 400) - 2 + noise(1, 400, seed=1)
    sums = kl_sums(logps, ref_logps, torch.ones(1, 400, dtype=torch.bool))
    k1, k2, k3 = (float(value / sums[3]) for value in sums[:3])
    assert k3 > 0
    assert check_kl_estimator(k3, sums).status == "ok"
    assert check_kl_estimator(k2, sums, "k2").status == "ok"
    assert check_kl_estimator(k2, sums).cause == "kl_not_k3"
    assert check_kl_estimator(-k3, sums).cause == "kl_sign"
    assert check_kl_estimator(-k1, sums, "k1").cause == "kl_sign"
    assert check_kl_estimator(3 * k3, sums).status == "unknown"  # weighted another way
    assert check_kl_estimator(0.0, torch.tensor([0.0, 0.0, 0.0, 9.0])).status == "unknown"


def sampled_logps(temperature=1.0, seed=0):
    """Learner's and sampler's log-probs of 300 tokens drawn from 20 at a temperature."""
    logits = 2 * noise(300, 20, seed=seed)
    warm = (logits / temperature).log_softmax(-1)
    tokens = torch.multinomial(warm.exp(), 1, generator=torch.Generator().manual_seed(1))
    return logits.log_softmax(-1).gather(1, tokens).T, warm.gather(1, tokens).T


def test_a_sampler_that_disagrees_says_why_by_its_pattern():
    mask = torch.ones(1, 300, dtype=torch.bool)
    learner, _ = sampled_logps()
    other_weights, _ = sampled_logps(seed=7)
    assert check_sampler(learner, learner + 1e-5, mask).status == "ok"
    assert check_sampler(*sampled_logps(1.4), mask).cause == "temperature_mismatch"
    assert check_sampler(*sampled_logps(0.7), mask).cause == "temperature_mismatch"
    assert check_sampler(learner, learner + 0.01 * noise(1, 300), mask).cause == "sampler_precision"
    assert (
        check_sampler(learner, (learner + noise(1, 300).abs() * 0.1).clamp(max=0), mask).cause == "truncated_sampling"
    )
    assert check_sampler(learner, other_weights, mask).cause == "stale_sampler_weights"
    assert check_sampler(learner, learner + 0.01 * noise(1, 300), mask, earlier=[1e-6]).cause == "stale_sampler_weights"
    assert check_sampler(learner, other_weights, mask, is_random=lambda: True).kind == "ratio_not_one"
    assert check_sampler(learner, learner, ~mask).status == "unknown"


def test_values_known_beforehand():
    expected = {"preference_loss": math.log(2)}
    assert check_start_values(expected, {"preference_loss": 0.6931}).status == "ok"
    off = {"preference_loss": 0.75}
    assert check_start_values(expected, off, policy_is_reference=True).cause == "beta_wrong_scale"
    assert check_start_values(expected, off, from_table=True).cause == "wrong_reference_cache"
    assert check_start_values(expected, off, is_random=lambda: True).cause == "dropout_on"
    assert check_start_values(expected, off).cause == "reference_not_start"
    assert check_start_values(expected, {}).status == check_start_values({}, off).status == "unknown"
    assert check_start_values({"preference_loss": 25.0}, {"preference_loss": 25.01}).status == "ok"  # relative
    assert check_start_likelihood(2.0, 50_000).status == "ok"
    assert check_start_likelihood(11.0, 50_000).kind == "loss_off_at_start"


def test_weights_that_change_and_do_not():
    layer = torch.nn.Linear(8, 8)
    layer.weight.grad = torch.ones(8, 8)  # the bias has no gradient
    sample = sample_weights(layer.parameters())
    with torch.no_grad():
        layer.weight[:4] += 0.1
    change = measure_change(sample)
    assert change[:2] == (64, 32)
    assert not change.is_coarse
    with torch.no_grad():
        layer.weight.copy_(layer.weight.bfloat16())
    assert measure_change(sample).is_coarse
    assert check_update(Change(1000, 3, 1e-7, True, 1e-9), lr=1e-6).cause == "bf16_weights"
    assert check_update(Change(1000, 0, 0.0, False, 1e-9), lr=1e-4).cause == "nothing_trainable"
    assert check_update(Change(100, 100, 1e-3), lr=1e-5).status == "ok"
    assert check_update(Change(100, 20, 1e-9), lr=1e-6, dtype=torch.bfloat16).cause == "bf16_weights"
    assert check_update(Change(100, 0, 0.0), lr=1e-12).cause == "learning_rate_too_low"
    assert check_update(Change(0, 0, 0.0), lr=1e-5).cause == "zero_gradient"
    for excuse in ({"lr": 0.0}, {"lr": 1e-5, "is_scaled": True}):
        assert check_update(Change(100, 0, 0.0), **excuse).status == "unknown"
    assert check_update(Change(0, 0, 0.0), lr=1e-5, has_signal=False).status == "unknown"
    assert check_trainable(layer.parameters()).status == "ok"
    assert check_trainable(layer.requires_grad_(False).parameters()).cause == "nothing_trainable"


def test_reward_models_that_measure_length():
    assert check_length_only(PairCounts(38, 40, 3, 40, 5, 10)).cause == "length_bias"
    assert check_length_only(PairCounts(38, 40, 30, 40, 5, 10)).status == "ok"
    assert check_length_only(PairCounts(22, 40, 18, 40, 5, 10)).status == "ok"  # at chance everywhere
    assert check_length_only(PairCounts(38, 40, 0, 5, 0, 0)).status == "unknown"


def test_reward_models_that_start_upside_down():
    assert check_order_at_start(PairCounts(10, 50, 10, 46, 0, 0)).cause == "labels_swapped"
    assert check_order_at_start(PairCounts(22, 50, 20, 46, 0, 0)).status == "ok"
    assert check_order_at_start(PairCounts(0, 10, 0, 10, 0, 0)).status == "unknown"


def test_pairs_are_counted_by_which_is_longer():
    chosen = torch.tensor([True, False] * 3)
    rewards, lengths = torch.tensor([2.0, 1, 1, 2, 1, 1]), torch.tensor([5, 4, 3, 4, 6, 6])
    assert count_pairs(rewards, lengths, chosen) == (1, 1, 0, 1, 0.5, 1)
    assert count_pairs(rewards, lengths, chosen.flip(0)) is None


def test_ranks():
    assert check_ranks([1, 2], [5, 5]).status == "ok"
    assert check_ranks([1, None], [5, 5]).status == "ok"
    assert check_ranks([1, 1], [5, 5]).cause == "duplicate_data"
    assert check_ranks([1, 2], [5, 6]).cause == "ranks_desynchronised"
    assert hash_tensor(torch.tensor([1, 2])) != hash_tensor(torch.tensor([2, 1]))


def test_resumes():
    assert check_learning_rate(1e-5, 1.1e-5).status == "ok"
    assert check_learning_rate(1e-5, 1e-4).cause == "learning_rate_jumped"
    assert check_optimizer_state(8, 8).status == "ok"
    assert check_optimizer_state(8, 0).cause == "optimizer_state_lost"
    assert check_random_state("a", "a").status == "ok"
    assert check_random_state("a", "b").severity == "info"
    assert check_data_order(1, 5, 6, in_epoch=True).status == "ok"
    assert check_data_order(1, 5, 1, in_epoch=True).cause == "data_order_lost"
    assert check_data_order(1, 1, 1, in_epoch=True).status == "unknown"  # the same phase
    assert check_data_order(1, 5, 1, in_epoch=False).status == "unknown"
    assert hash_state({"torch": torch.ones(2)}) != hash_state({"torch": torch.zeros(2)})


def test_overlap_is_news_before_it_is_a_fault():
    assert check_overlap(0, 100).status == "ok"
    assert check_overlap(3, 100).severity == "info"
    assert check_overlap(30, 100).severity == "warn"
    assert check_overlap(0, 0).status == "unknown"


def test_windows_are_joined_and_rows_chosen_in_pairs():
    parts = [{"input_ids": torch.ones(4, n, dtype=torch.long), "labels": torch.ones(4, n)} for n in (3, 5)]
    joined = join_tokens([parts[0], {}, parts[1]])
    assert joined["input_ids"].shape == (8, 5)
    assert joined["labels"][0].tolist() == [1, 1, 1, -100, -100]
    rows = affordable_rows({**joined, "place": torch.arange(8), "total": torch.ones(3)}, max_tokens=20)
    assert rows["place"].tolist() == [0, 1, 4, 5]
    assert "total" not in rows
    assert join_tokens([{}]) == {}


def test_a_window_whose_ratios_are_all_clipped_or_whose_advantages_are_zero_teaches_nothing():
    tokens = {"advantages": torch.tensor([[0.0, 1.0]])}
    assert has_signal({}, {}) is None
    assert has_signal(tokens, {"clip_ratio/region_mean": 0.9}) is True
    assert has_signal(tokens, {"clip_ratio/region_mean": 1.0}) is False  # GSPO, as shipped, at its second update
    assert has_signal({"advantages": torch.zeros(1, 2)}, {}) is False


def test_one_best_of_four_is_balanced_against_what_moves_all_rows():
    chosen = torch.tensor([True, False, False, False] * 4)
    signs, clusters = _signs(chosen)
    change = torch.where(chosen, 0.05, -0.01)[:, None] + 0.2  # all rows rise, and the best ones more
    mask = torch.ones_like(change, dtype=torch.bool)
    assert clusters is None
    assert update_direction(change, signs, mask).gain > 0
    assert update_direction(change, 2.0 * chosen.float() - 1.0, mask).gain < 0  # what unbalanced signs would say
    assert _signs(torch.tensor([True, False] * 4))[1] is not None
