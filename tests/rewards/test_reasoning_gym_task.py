"""Rows and scores of reasoning-gym tasks."""

import json

import pytest

from lit_rlhf.rewards import RewardSet, reasoning_gym_task
from lit_rlhf.rewards.reasoning_gym_task import ReasoningGym, load_reasoning_gym
from lit_rlhf_callbacks.errors import UserError

pytest.importorskip("reasoning_gym", reason="the extra 'tasks' is not installed")


def columns_of(rows):
    return {name: [row[name] for row in rows] for name in ("rg_dataset", "rg_options", "rg_entry")}


def test_rows_are_plain_and_repeatable():
    rows = load_reasoning_gym("chain_sum", "train", 5, 42, max_terms=3)
    assert rows == load_reasoning_gym("chain_sum", "train", 5, 42, max_terms=3)
    assert rows != load_reasoning_gym("chain_sum", "train", 5, 123, max_terms=3)
    assert rows == json.loads(json.dumps(rows))
    assert rows[0].keys() == {"prompt", "answer", "rg_dataset", "rg_options", "rg_entry"}
    assert rows[0]["prompt"][0]["role"] == "user"


def test_no_question_is_in_both_splits_for_any_seed():
    options = {"min_terms": 2, "max_terms": 2, "max_digits": 1}  # so few that every seed meets the same ones
    questions = {
        split: {
            row["prompt"][0]["content"]
            for seed in (1, 2)
            for row in load_reasoning_gym("chain_sum", split, 150, seed, **options)
        }
        for split in ("train", "eval")
    }
    assert len(questions["train"]) > 60
    assert len(questions["eval"]) > 15
    assert not questions["train"] & questions["eval"]


@pytest.mark.parametrize("name", ["chain_sum", "knights_knaves", "countdown", "rearc", "spell_backward"])
def test_the_right_answer_scores_one(name):
    # rearc holds tuples and knights_knaves numpy strings: neither survives JSON.
    rows = load_reasoning_gym(name, "eval", 3, 1)
    scores = ReasoningGym()(completions=[row["answer"] for row in rows], **columns_of(rows))
    assert scores == [1.0, 1.0, 1.0]


def test_options_reach_the_score():
    rows = load_reasoning_gym("decimal_arithmetic", "train", 2, 1, max_num_decimal_places=3)
    near = [f"{float(row['answer']) + 0.0009:.6f}" for row in rows]
    far = [f"{float(row['answer']) + 0.0011:.6f}" for row in rows]
    assert ReasoningGym()(completions=near, **columns_of(rows)) == [1.0, 1.0]
    assert ReasoningGym()(completions=far, **columns_of(rows)) == [0.0, 0.0]


def test_tag_and_rows_of_other_sources():
    (row,) = load_reasoning_gym("chain_sum", "train", 1, 1)
    texts = [f"<answer>{row['answer']}</answer>", row["answer"]]
    columns = columns_of([row, row])
    assert ReasoningGym(tag="answer")(completions=texts, **columns) == [1.0, 0.0]
    none = {"rg_dataset": [None], "rg_options": [None], "rg_entry": [None]}
    assert ReasoningGym()(completions=["1"], **none) == [None]


def test_columns_are_asked_for():
    with pytest.raises(UserError, match="'reasoning_gym' needs 'rg_dataset'"):
        RewardSet("reasoning_gym").check_columns({"answer"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chain_summ", {}, "no task 'chain_summ'; did you mean 'chain_sum'"),
        ("chain_sum", {"min_term": 2}, "no option 'min_term'; did you mean 'min_terms'"),
        ("chain_sum", {"min_terms": 9}, "refused: AssertionError: max_terms must be >= min_terms"),
        ("chain_sum", {"min_terms": "x"}, "refused: TypeError"),
    ],
)
def test_bad_tasks_get_one_line(name, options, message):
    with pytest.raises(UserError) as caught:
        load_reasoning_gym(name, "train", 2, 1, **options)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"reasoning_gym:{name}: ")
    assert "\n" not in str(caught.value)


def test_an_unknown_split_is_named():
    with pytest.raises(UserError, match="split must be train or eval, not 'test'"):
        load_reasoning_gym("chain_sum", "test", 2, 1)


def test_a_split_without_enough_questions_is_named(monkeypatch):
    monkeypatch.setattr(reasoning_gym_task, "EVAL_SHARE", 1)  # every question is held out
    with pytest.raises(UserError, match="100 questions gave only 0 of the 2 rows wanted for the train split"):
        load_reasoning_gym("chain_sum", "train", 2, 1)
