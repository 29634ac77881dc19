"""T12 and T6 over ranks: two ranks train on the same samples as one, to the same weights."""

from functools import partial

import pytest
import torch
from short_runs import (
    constant,
    deviation,
    optimizer,
    rows_by_content,
    same_samples,
    sometimes_none,
    spread_if_answered,
    write_prompts,
)

pytestmark = pytest.mark.ddp

SMOOTH = {"optimizer": optimizer("SGD", 0.05)}
CASES = {
    "every term": {"beta": 0.1, "entropy_coef": 0.01, "accumulate": 2},
    # five prompts: one rank has three groups and the other two; then an epoch's end, one prompt for two ranks
    "uneven": {"prompts_per_phase": 5, "updates": 3, "accumulate": 4, "rewards": [spread_if_answered], **SMOOTH},
    "windows": {"windows_per_phase": 2, "epochs_per_phase": 2, "updates": 5, "beta": 0.1, **SMOOTH},
    "budget": {"max_tokens_per_forward": 60, "windows_per_phase": 3, "updates": 3, **SMOOTH},
    "rows left out": {"mask_truncated": True, "rewards": [sometimes_none], "accumulate": 2},
}


@pytest.fixture
def both(run, run_on_two_ranks, data):
    """A function: the run on one rank, and what each of two ranks has seen."""

    def train(algorithm, prompts_per_phase=4, **settings):
        settings["data"] = {**settings.get("data", data), "prompts_per_phase": prompts_per_phase}
        return same_samples(partial(run, algorithm, **settings), partial(run_on_two_ranks, algorithm, **settings))

    return train


def assert_same_run(one, ranks, tolerance=1e-4):
    for rank in ranks:
        assert deviation(one, rank) < tolerance
        assert len(one.metrics) == len(rank.metrics)
        for mine, its in zip(one.metrics, rank.metrics, strict=True):
            assert its == pytest.approx(mine, rel=1e-4, abs=1e-5)
    for name in one.weights:
        assert torch.equal(ranks[0].weights[name], ranks[1].weights[name])


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_make_the_updates_of_one(algorithm, both, case):
    assert_same_run(*both(algorithm, **CASES[case]))


def test_ranks_hold_other_prompts_and_whole_groups(algorithm, both):
    one, ranks = both(algorithm, **CASES["every term"])
    ids = [{int(i) for tokens in rank.tokens if tokens for i in tokens["prompt_ids"]} for rank in ranks]
    assert not ids[0] & ids[1]
    assert ids[0] | ids[1] == set(one.tokens[0]["prompt_ids"].tolist()) | set(one.tokens[1]["prompt_ids"].tolist())
    for rank in ranks:
        of_prompts = torch.cat([tokens["prompt_ids"] for tokens in rank.tokens])
        assert all((of_prompts == prompt).sum() == 4 for prompt in of_prompts)


def test_completions_differ_between_ranks_and_samples(algorithm, both):
    _, ranks = both(algorithm, **CASES["every term"])
    completions = []
    for tokens in (tokens for rank in ranks for tokens in rank.tokens):
        for ids, mask in zip(tokens["input_ids"], tokens["completion_mask"], strict=True):
            completions.append(tuple(ids[mask].tolist()))
    assert len(completions) == 16
    assert len(set(completions)) > 12


def test_advantages_are_those_of_one_rank(algorithm, both):
    one, ranks = both(algorithm, **CASES["every term"])
    mine, its = rows_by_content(one), rows_by_content(ranks)
    for key in mine:
        assert torch.allclose(mine[key][0]["advantages"], its[key][0]["advantages"], atol=1e-6)


def test_a_batch_statistic_is_that_of_all_ranks(both):
    assert_same_run(*both("GRPO", advantage_scale="batch", accumulate=2))


def test_refills_are_shared_out(both, tmp_path_factory):
    answers = ["no", "yes", "no"] * 8
    data = write_prompts(tmp_path_factory.mktemp("refill") / "prompts.jsonl", answers)
    settings = {"rewards": [spread_if_answered], "drop_zero_std": True, "max_refill_rounds": 5}
    one, ranks = both("GRPO", data=data, prompts_per_phase=7, accumulate=2, **settings)
    assert one.metrics[0]["dynamic_sampling/extra_prompts"] > 7  # more than one round
    assert_same_run(one, ranks)


def test_nothing_to_train_on_ends_well(both):
    settings = {"rewards": [constant], "drop_zero_std": True, "max_refill_rounds": 2, "updates": 2, "beta": 0.1}
    one, ranks = both("GRPO", **settings)
    assert all(float(gradient.abs().max()) == 0 for gradient in one.gradients[0].values())
    assert one.metrics[0]["dynamic_sampling/missing_prompts"] == 4
    for rank in ranks:
        assert rank.metrics == one.metrics
