"""T10: a group that teaches nothing contributes nothing, its KL included, and its replacement comes to an end."""

import pytest
from short_runs import constant, deviation, spread_if_answered, write_prompts

GROUPED = {
    "rewards": [spread_if_answered],
    "drop_zero_std": True,
    "max_refill_rounds": 0,
    "beta": 0.1,
    "entropy_coef": 0.01,
}


@pytest.fixture(scope="session")
def kept_first(tmp_path_factory):
    """Four prompts that teach, then three that do not; a prompt's id, and so its noise, is its row."""
    return write_prompts(tmp_path_factory.mktemp("zero-std") / "prompts.jsonl", ["yes"] * 4 + ["no"] * 3)


@pytest.fixture(scope="session")
def only_kept(tmp_path_factory):
    return write_prompts(tmp_path_factory.mktemp("kept") / "prompts.jsonl", ["yes"] * 4)


def all_in_one_phase(data):
    return {**data, "prompts_per_phase": 7}


def test_a_dropped_group_is_as_good_as_not_there(algorithm, run, kept_first, only_kept):
    dropped = run(algorithm, data=all_in_one_phase(kept_first), **GROUPED)
    absent = run(algorithm, data=all_in_one_phase(only_kept), **GROUPED)
    assert dropped.metrics[0]["frac_reward_zero_std"] == pytest.approx(3 / 7)
    assert deviation(absent, dropped) < 1e-5
    assert dropped.metrics[0]["loss"] == pytest.approx(absent.metrics[0]["loss"], abs=1e-5)


def test_a_kept_one_counts(algorithm, run, kept_first, only_kept):
    """In denominators, and through its KL and entropy; that is what dropping is for."""
    kept = run(algorithm, data=all_in_one_phase(kept_first), **{**GROUPED, "drop_zero_std": False})
    absent = run(algorithm, data=all_in_one_phase(only_kept), **GROUPED)
    assert deviation(absent, kept) > 0.01


def test_dropped_groups_are_replaced_by_fresh_prompts(algorithm, run, tmp_path_factory):
    data = write_prompts(tmp_path_factory.mktemp("refill") / "prompts.jsonl", ["no", "yes", "no"] * 8)
    seen = run(algorithm, data={**data, "prompts_per_phase": 6}, **{**GROUPED, "max_refill_rounds": 8})
    prompt_ids = seen.tokens[0]["prompt_ids"].tolist()
    assert all(prompt_ids.count(prompt) == 4 for prompt in prompt_ids)
    assert {prompt % 3 for prompt in prompt_ids} == {1}
    assert len(set(prompt_ids)) == 6 - seen.metrics[0]["dynamic_sampling/missing_prompts"] == 6
    assert seen.metrics[0]["dynamic_sampling/extra_prompts"] >= 6


def test_a_refill_stops_when_the_prompts_are_used_up(algorithm, run, kept_first):
    seen = run(algorithm, data={**kept_first, "prompts_per_phase": 6}, **{**GROUPED, "max_refill_rounds": 50})
    assert seen.metrics[0]["dynamic_sampling/extra_prompts"] == 1
    assert seen.metrics[0]["dynamic_sampling/missing_prompts"] == 2


def test_a_refill_stops_at_its_bound_and_an_empty_window_is_no_update(algorithm, run, tmp_path_factory):
    data = write_prompts(tmp_path_factory.mktemp("bound") / "prompts.jsonl", ["no"] * 40)
    settings = {**GROUPED, "rewards": [constant], "max_refill_rounds": 3}
    seen = run(algorithm, data={**data, "prompts_per_phase": 4}, accumulate=2, updates=2, **settings)
    for metrics, gradients in zip(seen.metrics, seen.gradients, strict=True):
        assert metrics["dynamic_sampling/extra_prompts"] == 12
        assert metrics["dynamic_sampling/missing_prompts"] == 4
        assert metrics["loss"] == 0
        assert all(float(g.abs().max()) == 0 for g in gradients.values())
