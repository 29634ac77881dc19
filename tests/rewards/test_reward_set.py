"""Scores, totals, None, and every way in which a reward function can be wrong."""

import math
import os
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import torch

from lit_rlhf.rewards import RewardSet
from lit_rlhf_callbacks.errors import UserError


def run(rewards, completions, prompt_ids=None, **columns):
    """Score completions given as words; each word is one token."""
    rows = range(len(completions))
    return rewards(
        [[{"role": "user", "content": f"prompt {row}"}] for row in rows],
        [[{"role": "assistant", "content": text}] for text in completions],
        completion_ids=[list(range(len(text.split()))) for text in completions],
        prompt_ids=list(rows) if prompt_ids is None else prompt_ids,
        columns=columns,
    )


def line_of(call, *args, **kwargs):
    """The message of the error, which must be one line."""
    with pytest.raises(UserError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def text_of(completion):
    return completion[-1]["content"]


def test_total_is_the_weighted_sum_and_each_component_is_kept():
    def num_words(completion_ids):
        return [len(ids) for ids in completion_ids]

    table = run(RewardSet(["exact_match", {"function": num_words, "weight": -0.5}]), ["a", "b c"], answer=["a", "a"])
    assert table.scores.tolist() == [[1.0, 1.0], [0.0, 2.0]]
    assert table.scores.dtype == torch.float32
    assert table.total.tolist() == [0.5, -1.0]
    assert table.valid_mask.tolist() == [True, True]
    assert table.num_failed == 0


def test_weight_zero_logs_without_training():
    table = run(RewardSet(["exact_match", {"function": lambda completions: [7.0], "weight": 0}]), ["a"], answer=["a"])
    assert table.scores.tolist() == [[1.0, 7.0]]
    assert table.total.tolist() == [1.0]


def test_functions_get_what_trl_gives_them_and_no_more():
    seen = {}

    def takes_all(prompts, completions, completion_ids, **kwargs):
        seen["all"] = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids, **kwargs}
        return [0.0]

    def takes_some(answer, prompt_id, level=3):
        seen["some"] = {"answer": answer, "prompt_id": prompt_id, "level": level}
        return [0.0]

    run(RewardSet([takes_all, takes_some]), ["x y"], prompt_ids=[7], answer=["x"], level=[5], other=[None])
    assert seen["all"] == {
        "prompts": [[{"role": "user", "content": "prompt 0"}]],
        "completions": [[{"role": "assistant", "content": "x y"}]],
        "completion_ids": [[0, 1]],
        "answer": ["x"],
        "level": [5],
        "other": [None],
        "prompt_id": [7],
    }
    assert seen["some"] == {"answer": ["x"], "prompt_id": [7], "level": [5]}


def test_a_function_cannot_change_what_the_next_one_sees():
    def spoils(answer):
        answer[:] = ["spoilt"] * len(answer)
        return [0.0] * len(answer)

    table = run(RewardSet([spoils, "exact_match"]), ["a"], answer=["a"])
    assert table.scores.tolist() == [[0.0, 1.0]]


def test_none_means_that_the_function_does_not_apply():
    def only_maths(kind):
        return [2.0 if row == "maths" else None for row in kind]

    def only_code(kind):
        return [3.0 if row == "code" else None for row in kind]

    table = run(RewardSet([only_maths, only_code]), ["", "", ""], kind=["maths", "code", "poem"])
    assert table.total[:2].tolist() == [2.0, 3.0]
    assert math.isnan(table.total[2])
    assert table.scores.isnan().tolist() == [[False, True], [True, False], [True, True]]
    assert table.valid_mask.tolist() == [True, True, False]
    assert table.num_failed == 0


def test_rows_without_a_reward_are_marked_with_the_reason():
    def some(apply):
        return [1.0 if row else None for row in apply]

    rewards = RewardSet(some)
    assert run(rewards, ["", ""], apply=[True, False]).valid_mask.sum() == 1
    table = run(rewards, ["", "", ""], prompt_ids=[4, 5, 6], apply=[False, True, False])
    assert table.valid_mask.tolist() == [False, True, False]
    assert "returned None" in table.why_invalid
    assert "prompt ids 4, 6" in table.why_invalid
    assert run(rewards, ["", ""], apply=[True, True]).why_invalid is None


@pytest.mark.parametrize(
    "result", [[1, 0], (True, False), np.array([1.0, 0.0]), torch.tensor([1.0, 0.0]), [np.float32(1), torch.zeros(())]]
)
def test_numbers_of_every_kind_are_taken(result):
    assert run(RewardSet(lambda completions: result), ["a", "b"]).scores.tolist() == [[1.0], [0.0]]


def fails_on(word, how):
    """A reward function that is wrong for the completion ``word`` and 1 for every other."""

    def fussy(completions):
        return [how() if text_of(completion) == word else 1.0 for completion in completions]

    return fussy


def divide():
    return 1 / 0


def hang():
    while True:
        time.sleep(0.005)


BAD_ROWS = {
    "raises": (divide, "raised ZeroDivisionError: division by zero at", ["test_reward_set.py"]),
    "nan": (lambda: math.nan, "returned nan", []),
    "inf": (lambda: -math.inf, "returned -inf", []),
    "text": (lambda: "1.0", "returned '1.0', which is no number", []),
    "list": (lambda: [1.0], "returned [1.0], which is no number", []),
    "huge": (lambda: 10**300, "returned 1000000", []),
    "hangs": (hang, "did not return within 0.3 s", ["it was at", "test_reward_set.py"]),
}


@pytest.mark.parametrize(("how", "reason", "parts"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_stops_the_run_with_one_line(how, reason, parts):
    rewards = RewardSet(["exact_match", fails_on("bad", how)], timeout_s=0.3)
    message = line_of(run, rewards, ["ok", "bad", "ok"], prompt_ids=[10, 11, 12], answer=["", "", ""])
    assert message.startswith(f"reward function 'fussy' {reason}")
    assert "on_error" in message
    assert ("prompt ids 10, 11, 12" if how is hang else "(prompt id 11)") in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("how", "reason", "parts"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_dropped_counted_and_said_once(how, reason, parts):
    rewards = RewardSet(["exact_match", fails_on("bad", how)], timeout_s=0.3, on_error="skip")
    with pytest.warns(UserWarning, match="dropped and counted") as caught:
        table = run(rewards, ["ok", "bad", "ok"], prompt_ids=[10, 11, 12], answer=["ok", "bad", "no"])
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.startswith(f"reward function 'fussy' {reason}")
    assert "(prompt id 11)" in message
    assert "\n" not in message
    assert table.valid_mask.tolist() == [True, False, True]
    assert table.total[[0, 2]].tolist() == [2.0, 1.0]
    assert table.scores[1, 0] == 1.0  # the other function's score is still there to log
    assert table.scores[1].isnan().tolist() == [False, True]
    assert table.num_failed == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(rewards, ["bad", "ok"], answer=["", ""]).num_failed == 1


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([1.0], "returned 1 scores for 2 completions"),
        ([1.0, 1.0, 1.0], "returned 3 scores for 2 completions"),
        (None, "returned NoneType, not a list"),
        ("ab", "returned str, not a list"),
        ({0: 1.0, 1: 1.0}, "returned dict, not a list"),
        (1.0, "returned float, not a list"),
        (torch.ones(()), "returned Tensor, not a list"),
    ],
)
def test_a_result_of_the_wrong_form_stops_the_run_with_one_line(result, reason):
    def odd(completions):
        return result

    message = line_of(run, RewardSet(odd), ["a", "b"], prompt_ids=[3, 3])
    assert message.startswith(f"reward function 'odd' {reason}")
    assert "(prompt id 3)" in message


def test_a_function_that_fails_on_most_rows_says_why():
    rewards = RewardSet(fails_on("bad", divide), on_error="skip")
    with pytest.warns(UserWarning, match="fussy"):
        table = run(rewards, ["bad", "bad", "ok"])
    assert table.why_invalid.startswith("reward function 'fussy' raised ZeroDivisionError")


def test_a_function_that_hangs_again_and_again_is_an_error_under_skip_too():
    rewards = RewardSet(fails_on("bad", hang), timeout_s=0.1, on_error="skip")
    message = line_of(run, rewards, ["ok"] * 20 + ["bad"] * 4)
    assert "'fussy' did not return within 0.1 s" in message
    assert "3 times in one batch (prompt ids 20, 21, 22)" in message


def test_when_no_single_row_raises_the_batch_is_named():
    def needs_one(completions):
        if len(completions) > 1:
            raise ValueError("one\nat a time")
        return [0.0]

    message = line_of(run, RewardSet(needs_one), ["a", "b"], prompt_ids=[8, 9])
    assert "raised ValueError: one at a time at" in message
    assert "(prompt ids 8, 9)" in message


def test_the_original_error_is_the_cause():
    with pytest.raises(UserError) as caught:
        run(RewardSet(fails_on("bad", divide)), ["bad"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_ctrl_c_is_not_a_reward_error():
    def interrupted(completions):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(RewardSet(interrupted, on_error="skip"), ["a"])


def test_columns_are_checked_before_the_run():
    def wants(completions, solution, hint=None, **kwargs):
        return [0.0]

    rewards = RewardSet(["exact_match", wants])
    rewards.check_columns({"prompt", "answer", "solution"})
    message = line_of(rewards.check_columns, {"prompt", "answer"})
    assert "'wants' needs 'solution'" in message
    assert "columns: answer, prompt" in message
    RewardSet(lambda prompts, completions, completion_ids, prompt_id: []).check_columns(set())


def test_settings_are_checked():
    assert "timeout_s must be above 0" in line_of(RewardSet, "exact_match", timeout_s=0)
    assert "raise or skip" in line_of(RewardSet, "exact_match", on_error="ignore")


@pytest.mark.slow
def test_a_function_stuck_in_c_ends_the_process_with_one_line(tmp_path):
    (tmp_path / "my_stuck_rewards.py").write_text(
        textwrap.dedent(
            """
            import time
            def stuck(completions):
                time.sleep(1000)
            """
        )
    )
    script = textwrap.dedent(
        """
        from lit_rlhf.rewards import RewardSet
        rewards = RewardSet("my_stuck_rewards.stuck", timeout_s=0.5, on_error="skip")
        rewards(["p", "q"], ["c", "d"], completion_ids=[[1], [2]], prompt_ids=[31, 32], columns={})
        """
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300, check=False
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "reward function 'stuck' (prompt ids 31, 32) did not return within 1.5 s (it was at my_stuck_rewards.py:4) "
        "and cannot be interrupted there; ending the process"
    )
