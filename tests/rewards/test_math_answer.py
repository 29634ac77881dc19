"""Mathematical equality, with math-verify."""

import importlib.util

import pytest

from lit_rlhf.rewards import RewardSet
from lit_rlhf.rewards.math_answer import MathVerify
from lit_rlhf_callbacks.errors import UserError

needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="the extra 'tasks' is not installed"
)


@needs_math_verify
@pytest.mark.parametrize(
    ("text", "answer", "score"),
    [
        (r"so it is $\frac{1}{2}$", "0.5", 1.0),
        ("the answer is 1/2", r"\frac{1}{2}", 1.0),
        (r"\boxed{x(x+2)}", "x^2+2x", 1.0),
        (r"$2\sqrt{2}$", r"$\sqrt{8}$", 1.0),
        ("1,234", "1234", 1.0),
        (r"\boxed{8}", "7", 0.0),
        (r"either \boxed{3} or \boxed{5}", "5", 0.0),  # two answers are none
        ("It is 3. No, 5.", "3", 0.0),  # the last one counts
        ("", "7", 0.0),
        ("7", "", None),
        ("7", None, None),
    ],
)
def test_equal_as_mathematics(text, answer, score):
    assert MathVerify()(completions=[text], answer=[answer]) == [score]


@needs_math_verify
def test_only_the_tag_is_read():
    texts = ["<think>4</think><answer>5</answer>", "<answer>4</answer> or 5", "5"]
    assert MathVerify(tag="answer")(completions=texts, answer=["5"] * 3) == [1.0, 0.0, 0.0]


@needs_math_verify
def test_its_alarm_signals_work_under_the_watchdog():
    rewards = RewardSet("math_verify", timeout_s=30.0)
    table = rewards(["p"], [r"\boxed{4}"], completion_ids=[[1]], prompt_ids=[0], columns={"answer": ["4"]})
    assert table.total.tolist() == [1.0]


@pytest.mark.parametrize("name", ["math_verify", "reasoning_gym"])
def test_a_missing_package_is_named_at_the_start(name, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module == name else find_spec(module))
    with pytest.raises(UserError, match=rf"^reward function '{name}' needs .*pip install 'lit-rlhf\[tasks\]'$"):
        RewardSet(name)
