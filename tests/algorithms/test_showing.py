"""What an online run shows of itself: completions for a panel, and rewards that can be asked again."""

import pytest

from lit_rlhf.algorithms.showing import complete_prompts, reward_probes
from lit_rlhf.backbone import Backbone
from lit_rlhf.rewards import RewardSet
from lit_rlhf.rollout import NativeSampler

SAMPLING = {"max_new_tokens": 12, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3}


def prompt(number, word):
    return {"prompt_id": number, "prompt": [{"role": "user", "content": f"reverse {word}"}], "answer": word[::-1]}


PROMPTS = [prompt(4, "abolu"), prompt(9, "tek")]


@pytest.fixture(scope="module")
def backbone():
    backbone = Backbone("builtin:tiny")
    backbone.load()
    return backbone


@pytest.fixture(scope="module")
def complete(backbone):
    rewards = RewardSet(["exact_match"])
    return lambda prompts, **changed: complete_prompts(
        backbone, NativeSampler(backbone), rewards, prompts, {**SAMPLING, **changed}
    )


def test_a_panel_shows_special_tokens_and_scores(complete):
    shown = complete(PROMPTS)
    assert [row["prompt_id"] for row in shown] == [4, 9]
    assert shown[0]["prompt"] == "<bos><user>reverse abolu<assistant>"
    for row, source in zip(shown, PROMPTS, strict=True):
        assert row["completion"].endswith("<eos>") == (row["finish"] == "stop")
        assert 0 < row["num_tokens"] <= 12
        assert row["rewards"] == {"exact_match": float(row["completion"].removesuffix("<eos>") == source["answer"])}


def test_a_panel_depends_on_its_seed_and_each_prompt_only(complete):
    assert complete(PROMPTS) == complete(PROMPTS)
    assert complete(PROMPTS[1:]) == complete(PROMPTS)[1:]
    assert len({tuple(row["completion"] for row in complete(PROMPTS, seed=seed)) for seed in range(5)}) > 1


def test_prompts_without_the_rewards_columns_are_completed_all_the_same(complete):
    (row,) = complete([{"prompt_id": 0, "prompt": "hello"}])
    assert "rewards" not in row


def test_a_reward_can_be_asked_again_about_right_and_wrong_answers():
    (probe,) = reward_probes(RewardSet(["exact_match"]), [{"prompt_id": 0, "prompt": "no answer"}, *PROMPTS])
    scores = list(zip(probe["cases"], probe["call"](), strict=True))
    assert scores == list(zip(probe["cases"], probe["call"](), strict=True))
    assert scores[0] == ("right", 1.0)  # the bare answer
    assert {score for case, score in scores if case != "right"} == {0.0}
    assert [case for case, _ in scores].count("right") == [case for case, _ in scores].count("wrong")
    assert scores[-2:] == [("empty", 0.0), ("truncated", 0.0)]
    assert probe["name"] == "exact_match"
    assert reward_probes(RewardSet(["exact_match"]), [{"prompt_id": 0, "prompt": "no answer"}]) == []


def test_only_a_function_that_asks_for_the_answer_judges():
    probes = reward_probes(RewardSet(["exact_match", "last_number", "repetition"]), PROMPTS)
    assert {probe["name"]: probe["judges"] for probe in probes} == {
        "exact_match": True,
        "last_number": True,
        "repetition": False,
    }


def test_a_verifier_that_wants_a_tag_is_shown_one():
    (probe,) = reward_probes(RewardSet([{"function": "exact_match", "tag": "final"}]), PROMPTS)
    scores = dict(zip(probe["call"](), probe["cases"], strict=True))
    assert scores[1.0] == "right"


def test_with_one_answer_there_is_no_wrong_one():
    (probe,) = reward_probes(RewardSet(["exact_match"]), PROMPTS[:1])
    assert "wrong" not in probe["cases"]
