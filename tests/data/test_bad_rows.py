"""What is wrong with a row is said with file, row, column and what to do; or the row is skipped and counted."""

import gzip

import pytest

from lit_rlhf.data import PreferenceData, SupervisedData
from lit_rlhf_callbacks.errors import UserError

GOOD = b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n'


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "row 2: column 'rejected' is missing; the row has prompt, chosen: add it"),
        ({"prompt": "a", "chosen": None, "rejected": "c"}, "row 2: column 'chosen' is null; give it a value"),
        ({"prompt": "a", "chosen": " \n", "rejected": "c"}, "row 2: column 'chosen' is empty; give it a text"),
        ({"prompt": "a", "chosen": 3, "rejected": "c"}, "row 2: column 'chosen' is a number; it must be text"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "row 2: column 'rejected' is the same as 'chosen'"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "x"},
         "column 'margin' is text; it must be a number"),
        ({"prompt": "", "chosen": "b", "rejected": "c"}, "row 2: column 'prompt' is empty"),
        ({"prompt": [], "chosen": "b", "rejected": "c"}, "row 2: column 'prompt' is empty; give it a message"),
        ({"prompt": [{"role": "boss", "content": "a"}], "chosen": "b", "rejected": "c"},
         r"column 'prompt\[0\]\.role' has an unknown role; the role is one of system"),
        ({"prompt": [{"role": "user", "content": None}], "chosen": "b", "rejected": "c"},
         r"column 'prompt\[0\]\.content' is missing or null"),
        ({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"},
         "column 'rejected' has another form than 'chosen'"),
        ({"chosen": "xb", "rejected": "yc"}, "column 'rejected' shares no prompt with 'chosen'; add a column 'prompt'"),
        (b'{"prompt": "a", "chosen": "b", "chosen": "c", "rejected": "d"}\n', "column 'chosen' stands twice"),
        (b'{"prompt": "a", "chosen"\n', r"row 2: the row is not valid JSON; look at column 25"),
        (b'[1, 2]\n', "row 2: the row is not a JSON object"),
        (b'{"prompt": "\xff", "chosen": "b", "rejected": "c"}\n', r"the row is not valid UTF-8; save it as UTF-8"),
        (b'{"prompt": "\\ud800", "chosen": "b", "rejected": "c"}\n', "column 'prompt' is not valid Unicode"),
        (b'{"prompt": "' + b"a" * 10_000_000 + b'", "chosen": "b", "rejected": "c"}\n',
         "row 2: the row is longer than 4 MB"),
        (b"[" * 100_000 + b"\n", "row 2: the row is not valid JSON"),
        (b'{"prompt": ' + b"9" * 5000 + b"}\n", "row 2: the row is not valid JSON"),
    ],
)  # fmt: skip
def test_a_bad_row_is_an_error_with_its_place_or_skipped_and_counted(write, row, message):
    source = write([GOOD, row, GOOD, GOOD])
    with pytest.raises(UserError, match=message) as error:
        PreferenceData(train=source).setup("fit")
    assert str(error.value).startswith(f"{source}, row 2: ")
    assert str(error.value).endswith(", or set data.on_bad_row: skip")
    assert "\n" not in str(error.value)

    data = PreferenceData(train=source, on_bad_row="skip")
    with pytest.warns(UserWarning, match=r"1 of 4 rows cannot be used: 1 × .* \(first: row 2\); skipped"):
        data.setup("fit")
    assert [row.number for row in data.loaded["train"]] == [0, 2, 3]


def test_a_repeated_id_is_an_error(write):
    rows = [{"id": "x", "text": "a"}, {"id": "y", "text": "b"}, {"id": "x", "text": "c"}]
    with pytest.raises(UserError, match="row 3: column 'id' repeats an earlier row's; 'x' is row 1's too"):
        SupervisedData(train=write(rows)).setup("fit")


@pytest.mark.parametrize(
    ("row", "mask", "message"),
    [
        (
            {"question": "a"},
            "auto",
            "the row has none of the columns messages, prompt and completion, or text; it has q",
        ),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "auto", "column 'tools' is not supported"),
        ({"messages": [{"role": "user", "content": "a"}]}, "auto", "'messages' does not end with an assistant message"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "auto", "'messages' begins with an assistant message"),
        ({"text": "a"}, "completion_only", "'text' has no completion of its own; data.mask: completion_only needs"),
        ({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}, "auto", "but 'prompt' is text"),
    ],
)
def test_supervised_rows_say_what_they_lack(write, row, mask, message):
    with pytest.raises(UserError, match=message):
        SupervisedData(train=write([row]), mask=mask).setup("fit")


@pytest.mark.parametrize("label", ["yes", 2, None, float("nan"), [True]])
def test_a_label_is_true_or_false(write, label):
    with pytest.raises(UserError, match="row 1: column 'label' is"):
        PreferenceData(train=write([{"prompt": "a", "completion": "b", "label": label}])).setup("fit")


def test_all_rows_are_of_the_first_ones_kind(write):
    rows = [{"prompt": "a", "completion": "b", "label": True}, {"prompt": "a", "chosen": "b", "rejected": "c"}]
    with pytest.raises(UserError, match="row 2: column 'completion' is missing"):
        PreferenceData(train=write(rows)).setup("fit")


def test_a_file_of_which_most_is_bad_is_refused_even_when_skipping(write):
    with pytest.raises(UserError, match=r"2 of 3 rows cannot be used: 2 × column 'chosen' is empty .*too many"):
        PreferenceData(train=write([GOOD] + [GOOD.replace(b'"b"', b'""')] * 2), on_bad_row="skip").setup("fit")


def test_the_template_may_refuse_a_row(write, tokenizer):
    good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    bad = {"messages": [{"role": "tool", "content": "3"}, *good["messages"]]}
    data = SupervisedData(train=write([good, bad, good]))
    data.setup("fit")
    with pytest.raises(UserError, match="row 2: the row is refused by the chat template"):
        data.tokenise(tokenizer)
    data = SupervisedData(train=write([good, bad, good]), on_bad_row="skip")
    data.setup("fit")
    with pytest.warns(UserWarning, match=r"1 of 3 rows cannot be used: 1 × is refused by the chat template"):
        data.tokenise(tokenizer)
    assert len(data.train_examples) == 2


def test_a_missing_file_gives_one_line(tmp_path):
    with pytest.raises(UserError, match="there is no file") as error:
        SupervisedData(train=str(tmp_path / "none.jsonl")).setup("fit")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.json", b'[{"text": "a"}, {"text": ]', "line 1, column 26: not valid JSON"),
        ("rows.json", b'[{"text": "\xff"}]', "not valid UTF-8"),
        ("rows.json", b'[{"text": "a"}, 3]', "row 2: the row is not a JSON object"),
        ("rows.csv", b"text,text\na,b\n", "the header names a column twice"),
        ("rows.csv", b"text\na,b\n", "row 1: the row has another number of cells"),
        ("rows.csv", b"text\n\xff\n", "not valid UTF-8"),
        ("rows.csv", b'text\n"a\n', "not valid CSV"),
        ("rows.parquet", b"PAR1 nonsense", "not valid parquet"),
        ("rows.jsonl.gz", b"no gzip", "cannot be read"),
        ("rows.jsonl", b"", "has no row to train on"),
    ],
)
def test_files_of_every_kind_can_be_broken(write, name, content, message):
    with pytest.raises(UserError, match=message) as error:
        SupervisedData(train=write([content], name)).setup("fit")
    assert "\n" not in str(error.value)


def test_files_of_every_kind_give_the_same_rows(write, tmp_path):
    from datasets import Dataset
    from pyarrow import Table, parquet

    rows = [{"prompt": "a", "completion": "b", "label": True}, {"prompt": "c", "completion": '"d", e', "label": False}]
    lines = write(rows)
    csv = b'prompt,completion,label\na,b,True\nc,"""d"", e",false\n'
    sources = [lines, write([str(rows).replace("'", '"').lower().replace('""d"', '"\\"d\\"').encode()], "rows.json")]
    sources += [write([csv], "rows.csv"), str(tmp_path / "rows.parquet"), str(tmp_path / "rows.jsonl.gz")]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "rows.parquet")
    with open(lines, "rb") as file:
        (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(file.read()))
    Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    for source in [*sources, str(tmp_path / "saved")]:
        data = PreferenceData(train=source)
        data.setup("fit")
        assert [row.row for row in data.loaded["train"]] == rows, source


def test_blank_lines_count_as_lines_but_are_no_rows(write):
    data = SupervisedData(train=write([b"\xef\xbb\xbf", {"text": "a"}, b"\n", {"text": "b"}]))
    data.setup("fit")
    assert [row.number for row in data.loaded["train"]] == [0, 2]
