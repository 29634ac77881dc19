"""Held-out pass@1: what counts as right, its standard error, and its n."""

import math

import pytest

from lit_rlhf.algorithms.evaluation import Evaluation
from lit_rlhf.backbone import Backbone
from lit_rlhf.rewards import RewardSet
from lit_rlhf_callbacks.errors import UserError


def is_right(completions):
    return [1.0] * len(completions)


def test_the_rate_its_error_and_its_n_over_batches(make_rollout):
    evaluation = Evaluation(RewardSet([is_right]), None)
    evaluation.add(make_rollout([(0, 1.0, 4, False), (1, 0.98, 2, False), (2, 0.99, 3, False)]))
    evaluation.add(make_rollout([(3, 0.0, 11, True)]))
    metrics = evaluation.compute()
    assert metrics["eval/pass_at_1"] == 0.5  # from 0.99 on: partial credit is not right
    assert metrics["eval/pass_at_1_se"] == pytest.approx(math.sqrt(0.25 / 4))
    assert metrics["eval/n"] == 4
    assert metrics["eval/completions/mean_length"] == 5
    assert metrics["eval/completions/clipped_ratio"] == 0.25


def test_a_sample_without_score_is_wrong_and_in_no_mean_reward(make_rollout):
    evaluation = Evaluation(RewardSet([is_right]), None)
    evaluation.add(make_rollout([(0, 1.0, 4, False), (1, None, 2, False)]))
    metrics = evaluation.compute()
    assert metrics["eval/pass_at_1"] == 0.5
    assert metrics["eval/reward"] == 1.0


def test_each_evaluation_starts_anew(make_rollout):
    evaluation = Evaluation(RewardSet([is_right]), None)
    evaluation.add(make_rollout([(0, 0.0, 4, False)]))
    evaluation.compute()
    evaluation.add(make_rollout([(0, 1.0, 4, False)]))
    assert evaluation.compute()["eval/pass_at_1"] == 1.0


def test_the_reward_that_says_right_is_chosen_by_name():
    rewards = RewardSet(["exact_match", is_right])
    assert Evaluation(rewards, None).column == 0
    assert Evaluation(rewards, "is_right").column == 1
    with pytest.raises(UserError, match="no reward is called 'right'; there are: exact_match, is_right"):
        Evaluation(rewards, "right")


@pytest.fixture
def reward_model(tmp_path):
    """A spec of a reward model."""
    backbone = Backbone("builtin:tiny", head="score")
    backbone.load()
    backbone.save_model(tmp_path)
    return {"function": "reward_model", "model": str(tmp_path)}


def test_no_answer_is_right_because_a_reward_model_scores_it_high(make_rollout, reward_model):
    rewards = RewardSet([reward_model, is_right])
    assert Evaluation(rewards, None).column == 1
    assert Evaluation(rewards, "reward_model").column == 0  # who asks for it gets it
    evaluation = Evaluation(RewardSet([reward_model]), None)
    evaluation.add(make_rollout([(0, 5.0, 4, False)]))
    metrics = evaluation.compute()
    assert metrics["eval/reward"] == 5.0
    assert not {"eval/pass_at_1", "eval/pass_at_1_se"} & set(metrics)
