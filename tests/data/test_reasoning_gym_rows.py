"""A reasoning-gym task needs no options, as the README says."""

import pytest

from lit_rlhf.data import PromptData

pytest.importorskip("reasoning_gym", reason="the extra 'tasks' is not installed")


def test_a_task_gives_rows_without_options():
    data = PromptData(prompts="reasoning_gym:chain_sum")
    data.setup("fit")
    assert len(data.train_rows) == 4_000
    assert len(data.eval_rows) == data.num_eval
    asked = {row["prompt"][0]["content"] for row in data.train_rows}
    assert not asked & {row["prompt"][0]["content"] for row in data.eval_rows}


def test_options_say_otherwise():
    data = PromptData(prompts="reasoning_gym:chain_sum", options={"size": 20, "max_terms": 3}, num_eval=5)
    data.setup("fit")
    assert (len(data.train_rows), len(data.eval_rows)) == (20, 5)
