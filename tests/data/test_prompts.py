"""Prompt data: held-out rows are never trained on, limits are seeded, errors name file and row."""

import json

import pytest

from lit_rlhf.data import PromptData
from lit_rlhf_callbacks.errors import UserError


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def ready(**settings):
    data = PromptData(**settings)
    data.setup("fit")
    return data


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "prompts.jsonl", [{"prompt": f"p{n}", "answer": str(n)} for n in range(50)])


def test_a_file_is_split_into_disjoint_training_and_held_out_rows(file):
    data = ready(prompts=file)
    train, held_out = ({row["prompt_id"] for row in rows} for rows in (data.train_rows, data.eval_rows))
    assert len(held_out) == 5
    assert train | held_out == set(range(50))
    assert not train & held_out


def test_prompt_id_is_the_row_number_as_read(file):
    assert all(row["prompt"] == f"p{row['prompt_id']}" for row in ready(prompts=file).train_rows)


def test_a_prompt_id_of_ones_own_is_not_lost_without_a_word(tmp_path):
    file = write(tmp_path / "prompts.jsonl", [{"prompt": f"p{n}", "prompt_id": 100 + n} for n in range(20)])
    with pytest.warns(UserWarning, match=r"replace the column prompt_id of '.*prompts.jsonl'; rename it"):
        assert max(row["prompt_id"] for row in ready(prompts=file).train_rows) < 20


def test_limit_draws_the_same_prompts_every_time(file):
    first, second = ready(prompts=file, limit=7), ready(prompts=file, limit=7)
    assert len(first.train_rows) == 7
    assert first.train_rows == second.train_rows


def test_the_builtin_task_holds_out_other_words():
    data = ready(limit=500)
    assert not {row["answer"] for row in data.train_rows} & {row["answer"] for row in data.eval_rows}


def test_extra_prompts_are_fresh_and_depend_on_phase_and_attempt(file):
    data = ready(prompts=file)
    used = {row["prompt_id"] for row in data.train_rows[:10]}
    first = [row["prompt_id"] for row in data.extra_prompts(used, 5, phase=3, attempt=1)]
    assert len(set(first)) == 5
    assert not used & set(first)
    assert first == [row["prompt_id"] for row in data.extra_prompts(used, 5, phase=3, attempt=1)]
    assert first != [row["prompt_id"] for row in data.extra_prompts(used, 5, phase=4, attempt=1)]
    assert data.extra_prompts(set(range(50)), 5, phase=3, attempt=1) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no prompt to train on"),
        ('{"prompt": "a"}\n{"prompt": \n', "row 2, column"),
        ('{"prompt": "a"}\n[1]\n', "row 2: not a JSON object"),
        ('{"prompt": "a"}\n{"question": "b"}\n', "row 2: column 'prompt' is missing"),
    ],
)
def test_bad_files_give_one_line_with_the_place(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        ready(prompts=str(path))
    assert "\n" not in str(error.value)


def test_a_missing_file_and_an_unknown_task_give_one_line(tmp_path):
    for source in (str(tmp_path / "none.jsonl"), "builtin:reverse_word"):
        with pytest.raises(UserError) as error:
            ready(prompts=source)
        assert "\n" not in str(error.value)
