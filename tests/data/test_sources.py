"""Prompts are read from every kind of file, and what cannot be read is said in one line."""

import datasets
import pytest

from lit_rlhf.data.sources import load_rows
from lit_rlhf_callbacks.errors import UserError

ROWS = [{"prompt": "1 + 1 =", "answer": "2"}, {"prompt": "ä → b", "answer": "c"}]


@pytest.mark.parametrize("ending", ["json", "csv", "parquet"])
def test_files(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    table = datasets.Dataset.from_list(ROWS)
    getattr(table, f"to_{ending}")(path)
    assert [{**row, "answer": str(row["answer"])} for row in load_rows(str(path), "train", {})] == ROWS


def test_json_lines_may_hold_line_breaks_of_other_alphabets_and_empty_lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n\n{"prompt": "c"}\n', encoding="utf-8")
    assert [row["prompt"] for row in load_rows(str(path), "train", {})] == ["a\u2028b", "c"]


def test_a_folder_saved_by_datasets(tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    assert load_rows(str(tmp_path / "saved"), "train", {}) == ROWS


def test_conversations(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": [{"role": "user", "content": "hi"}]}\n')
    assert load_rows(str(path), "train", {}) == [{"prompt": [{"role": "user", "content": "hi"}]}]


def test_a_built_in_task_takes_its_options_and_holds_rows_out():
    train, held_out = (load_rows("builtin:reverse_words", split, {"num_rows": 5}) for split in ("train", "eval"))
    assert len(train) == len(held_out) == 5
    assert not {row["answer"] for row in train} & {row["answer"] for row in held_out}


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("builtin:reverse_word", {}, "did you mean 'reverse_words'"),
        ("builtin:reverse_words", {"max_lenght": 3}, "max_length"),
        ("nowhere.jsonl", {}, "there is no file 'nowhere.jsonl'"),
        ("nowhere.csv", {}, "cannot open 'nowhere.csv'"),
        ("rows.jsonl", {"max_length": 3}, "takes no options, got .*max_length"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(source, options, message):
    with pytest.raises(UserError, match=message) as error:
        load_rows(source, "train", options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "\xff"}\n', "not valid UTF-8; save the file as UTF-8"),
        (b'{"prompt": "a"}\n"text"\n', "row 2: not a JSON object"),
        (b'{"prompt": "a"}\n{"prompt": "b"\n', "row 2, column .*: not valid JSON"),
        (b'{"prompt": ""}\n', "row 1: column 'prompt' is missing or empty"),
    ],
)
def test_a_bad_row_is_named(tmp_path, content, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_rows(str(path), "train", {})
    assert "\n" not in str(error.value)
