"""The built-in reward functions against cases worked out by hand, and the ways to cheat them."""

import pytest

from lit_rlhf.rewards import is_correct
from lit_rlhf.rewards.answer import ExactMatch
from lit_rlhf.rewards.builtin_rewards import BUILTINS
from lit_rlhf.rewards.form import Format, Length, Overlong, Repetition


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_exact_match_strips_and_compares():
    completions = [chat(" 42\n"), chat("42."), "42", chat("")]
    assert ExactMatch()(completions=completions, answer=["42", "42", "42 ", "42"]) == [1.0, 0.0, 1.0, 0.0]


def test_exact_match_does_not_apply_without_an_answer():
    assert ExactMatch()(completions=[chat("")], answer=[None]) == [None]


def test_exact_match_in_a_tag():
    texts = ["<answer> 42 </answer>", "<answer>1</answer><answer>42</answer>", "42", "<answer>42", "42</answer>"]
    assert ExactMatch(tag="answer")(completions=texts, answer=["42"] * 5) == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer>",
        "\n <think>\na\n</think>\n\n<answer> b </answer> \n",
        "<think>a < b and </i></think><answer>b</answer>",
    ],
)
def test_format_takes_what_is_well_formed(text):
    assert Format()(completions=[chat(text)]) == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "<answer>b</answer><think>a</think>",  # order
        "<think>a</think>",  # one missing
        "<think>a</think><answer>b",  # not closed
        "</think>a<think></answer>b<answer>",  # closed before opened
        "<think>a<answer>b</think></answer>",  # crossing
        "<think>a<answer>b</answer></think>",  # nested
        "<think><answer></answer>a</think><answer>b</answer>",  # tags within the reasoning
        "<think>a</think><answer>b</answer>" * 2,  # repeated
        "<think>a</think><think>a</think><answer>b</answer>",
        "<think>a</think><answer>b</answer> so b",  # something outside
        "well <think>a</think><answer>b</answer>",
        "<think>a</think> so <answer>b</answer>",
        "<think></think><answer> </answer>",  # nothing inside
        "<Think>a</Think><Answer>b</Answer>",
    ],
)
def test_format_cannot_be_earned_by_tags_alone(text):
    assert Format()(completions=[chat(text)]) == [0.0]


def test_length_in_tokens_and_in_characters():
    ids = [[1] * n for n in (0, 5, 8, 10, 12, 17, 22, 40)]
    scores = Length(target=10, band=2)(completions=[""] * 8, completion_ids=ids)
    assert scores == pytest.approx([0.2, 0.7, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0])
    by_characters = Length(target=4, unit="characters")
    assert by_characters(completions=[chat("four"), "ab"], completion_ids=[[], []]) == [1.0, 0.5]


def test_repetition_is_never_positive():
    reward = Repetition(ngram=2, max_penalty=2.0)
    assert reward(completion_ids=[[], [1], [1, 2, 3], [1, 2, 1, 2, 1]]) == [0.0, 0.0, 0.0, -1.0]


def test_overlong_is_dapo_equation_13():
    ids = [[1] * n for n in (0, 15, 16, 18, 20, 25)]
    assert Overlong(max_tokens=20, cache=5)(completion_ids=ids) == pytest.approx([0.0, 0.0, -0.2, -0.6, -1.0, -1.0])
    assert Overlong(max_tokens=20, cache=0)(completion_ids=ids) == [0.0, 0.0, 0.0, 0.0, 0.0, -1.0]


def test_partial_credit_is_not_correct():
    assert [is_correct(score) for score in (1.0, 0.99, 0.98, 0.8, 0.0)] == [True, True, False, False, False]


def test_every_built_in_is_documented():
    for name, kind in BUILTINS.items():
        assert len(kind.__doc__.splitlines()) > 1, name
        assert not kind.__doc__.startswith(kind.__name__), name  # not the signature a dataclass makes up
