"""Stepwise data: each step is judged at the last token of its separator."""

import pytest

from lit_rlhf.data import StepwiseData
from lit_rlhf_callbacks.errors import UserError

ROW = {"prompt": "q", "completions": ["ab", "c", "d"], "labels": [True, 1, False]}


def test_steps_are_labelled_at_their_last_token(write, ready, shown):
    example = ready(StepwiseData(train=write([ROW]))).train_examples[0]
    assert shown(example.samples[0]) == "qab[\n]c[\n]d[\n]"
    assert example.steps == [(3, 1.0), (5, 1.0), (7, 0.0)]


def test_without_a_separator_the_step_itself_is_judged(write, ready, shown):
    example = ready(StepwiseData(train=write([ROW]), step_separator="")).train_examples[0]
    assert shown(example.samples[0]) == "qa[bcd]"


def test_a_conversation_is_rendered_as_when_the_model_generates(write, ready, shown):
    row = {**ROW, "prompt": [{"role": "user", "content": "q"}]}
    example = ready(StepwiseData(train=write([row]))).train_examples[0]
    assert shown(example.samples[0]) == "<bos><user>q<assistant>ab[\n]c[\n]d[\n]"


def test_steps_beyond_the_length_are_left_out_with_their_labels(write, ready):
    row = {"prompt": "q", "completions": ["abcd", "efgh", "ijkl"], "labels": [True, False, True]}
    with pytest.warns(UserWarning, match="completion cut at its end"):
        example = ready(StepwiseData(train=write([row]), max_length=12)).train_examples[0]
    assert example.steps == [(5, 1.0), (10, 0.0)]


def test_the_builtin_task_has_right_and_wrong_steps(ready):
    data = ready(StepwiseData(options={"num_rows": 50}))
    assert {label for example in data.train_examples for _, label in example.steps} == {0.0, 1.0}
    assert all(label in (True, False) for row in data.loaded["train"] for label in row.row["labels"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [True]}, "column 'labels' has another length than 'completions'"),
        ({"labels": [True, "no", False]}, r"column 'labels\[1\]' is text; it must be a number"),
        ({"labels": [True, 2, False]}, r"column 'labels\[1\]' is no step label"),
        ({"completions": ["a", "", "b"]}, r"column 'completions\[1\]' is empty"),
        ({"completions": []}, "column 'completions' has fewer than 1"),
    ],
)
def test_bad_steps(write, ready, change, message):
    with pytest.raises(UserError, match=message):
        ready(StepwiseData(train=write([{**ROW, **change}])))
