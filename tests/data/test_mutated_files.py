"""Files broken in every way a seed can think of: a line that says why, or a counted skip; never garbage.

A hundred of them; ``LIT_RLHF_MUTATED_FILES=1000`` tries a thousand.
"""

import csv
import io
import json
import os
import random

import pytest

from lit_rlhf.data import PreferenceData, StepwiseData, SupervisedData
from lit_rlhf_callbacks.errors import UserError

NUM_FILES = int(os.environ.get("LIT_RLHF_MUTATED_FILES", "100"))
NUM_ROWS = 12


def chat(prompt, answer):
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


FORMS = {
    "text": (SupervisedData, lambda q, a, b: {"text": f"{q} {a}"}),
    "messages": (SupervisedData, lambda q, a, b: {"messages": [*chat(q, a), *chat(b, q)]}),
    "completion": (SupervisedData, lambda q, a, b: {"prompt": q, "completion": a}),
    "paired": (PreferenceData, lambda q, a, b: {"prompt": q, "chosen": a, "rejected": b, "margin": 1.5}),
    "implicit": (PreferenceData, lambda q, a, b: {"chosen": chat(q, a), "rejected": chat(q, b)}),
    "ranked": (PreferenceData, lambda q, a, b: {"prompt": q, "completions": [a, b, q], "scores": [1, 3, 2]}),
    "unpaired": (PreferenceData, lambda q, a, b: {"prompt": chat(q, a)[:1], "completion": a, "label": len(a) % 2 == 0}),
    "stepwise": (StepwiseData, lambda q, a, b: {"prompt": q, "completions": [a, b], "labels": [True, False]}),
}
VALUES = [
    None, "", "  \n", 0, 7, -1.5, float("nan"), float("inf"), True, [], {}, [[]], [None], [3], ["a", 3],
    {"role": "user"},
    [{"role": "user"}], [{"role": "assistant", "content": ""}], [{"role": 3, "content": "x"}], chat("x", "y"), "<eos>",
    "<bos><user>", "\x00", "\ud800", "é" * 40, "z" * 5000, "\u202e\u0301", [True], ["a"] * 50, 10**30,
]  # fmt: skip


def make_rows(form, rng):
    def word():
        return "".join(rng.choice("abcdefgh ij") for _ in range(rng.randint(3, 12))).strip() + rng.choice("xyz")

    return [{"id": n, **FORMS[form][1](word(), f"{word()}1", f"{word()}2")} for n in range(NUM_ROWS)]


def mutate_rows(rows, rng):
    """Change what a few rows hold."""
    for _ in range(rng.randint(0, 3)):
        row = rng.choice(rows)
        column = rng.choice(list(row) or ["prompt"])
        what = rng.randrange(7)
        if what == 0:
            row.pop(column, None)
        elif what == 1:
            row[rng.choice(["prompt", "chosen", "text", "messages", "label", column])] = rng.choice(VALUES)
        elif what == 2:
            row[column] = rng.choice(VALUES)
        elif what == 3:
            other = rng.choice(list(row) or ["prompt"])
            row[column] = row.get(other)
        elif what == 4 and isinstance(row.get(column), list):
            place = rng.randrange(len(row[column]) + 1)
            row[column] = [*row[column][:place], rng.choice(VALUES), *row[column][place + rng.randint(0, 1) :]]
        elif what == 5:
            rows.insert(rng.randrange(len(rows)), dict(row))
        else:
            row.clear()


def mutate_bytes(data, rng):
    """Change what a file holds."""
    for _ in range(rng.choice([0, 0, 0, 1, 1, 3])):
        place, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 20, 200])
        junk = bytes(rng.randrange(256) for _ in range(length))
        data = rng.choice(
            [
                data[:place],
                data[:place] + data[place + length :],
                data[:place] + junk + data[place:],
                data[:place] + junk + data[place + length :],
                data[:place] + data[max(0, place - length) :],
                data[:place] + rng.choice([b"\n", b"\r", b"\0", b'"', b"{", b"]", b",", b"\xff\xfe"]) + data[place:],
            ]
        )
    return data


def as_bytes(rows, suffix):
    if suffix == "csv":
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        for row in rows:
            cells = [row.get(name) for name in columns]
            writer.writerow([json.dumps(c) if isinstance(c, list | dict) else "" if c is None else c for c in cells])
        return text.getvalue().encode("utf-8", "surrogatepass")
    if suffix == "json":
        return json.dumps(rows).encode()
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def expected_texts(row, form):
    """What must be learned from a row, found out without the code under test."""
    if form in ("text", "completion"):
        return [row["text" if form == "text" else "completion"]]
    if form == "messages":
        return ["<eos>".join(m.get("content", m.get("value")) for m in row["messages"] if m["role"] == "assistant")]
    if form == "paired":
        return [row["chosen"], row["rejected"]]
    if form == "implicit":
        return [row["chosen"][-1]["content"], row["rejected"][-1]["content"]]
    return None


def check_example(example, row, form, tokenizer):
    assert example.samples
    for sample in example.samples:
        assert 2 <= len(sample.ids) == len(sample.mask)
        assert not sample.mask[0]
        assert any(sample.mask)
        assert not any(sample.mask[: sample.num_prompt])
    if len(example.samples) > 1:
        assert len({tuple(sample.ids) for sample in example.samples}) == len(example.samples)
    if form == "unpaired":
        assert example.label in (0.0, 1.0)
    if form == "stepwise":
        assert all(sample.mask[place] for place, _ in example.steps)
        assert {label for _, label in example.steps} <= {-1.0, 0.0, 1.0}
    texts = expected_texts(row, form) if row is not None else None
    for sample, text in zip(example.samples, texts or [], strict=False):
        learned = [int(token) for token, counts in zip(sample.ids, sample.mask, strict=True) if counts]
        assert tokenizer.decode(learned).removesuffix("<eos>").endswith(text.removesuffix("<eos>")[-200:]) or (
            form == "text" and text.endswith(tokenizer.decode(learned).removesuffix("<eos>"))
        )


def refused(data, tokenizer):
    try:
        data.setup("fit")
        data.tokenise(tokenizer)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(NUM_FILES))
def test_a_broken_file_is_refused_in_a_line_or_skipped_and_counted(number, tmp_path, tokenizer):
    rng = random.Random(number)
    form = rng.choice(list(FORMS))
    suffix = rng.choice(["jsonl", "jsonl", "jsonl", "json", "csv"])
    rows = make_rows(form, rng)
    mutate_rows(rows, rng)
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(mutate_bytes(as_bytes(rows, suffix), rng))
    data = FORMS[form][0](train=str(path), on_bad_row=rng.choice(["raise", "skip"]), num_eval=rng.choice([0, 4]))
    if (refusal := refused(data, tokenizer)) is not None:
        assert len(refusal.splitlines()) == 1
        assert str(path) in refusal or refusal.startswith("data")
        return

    [source] = data.sources
    lines = path.read_bytes().split(b"\n")
    if suffix == "jsonl":
        assert len(source.rows) + len(source.bad) == sum(bool(line.strip()) for line in lines)
    assert len(data.loaded["train"]) + len(data.loaded["eval"]) == len(source.rows)
    for part in ("train", "eval"):
        tally = data.tallies[part]
        assert tally.num_examples + tally.num_dropped == tally.num_rows == len(data.loaded[part])
        assert len(data.tables[part]) == tally.num_examples
        for example in data.tables[part]:
            row = json.loads(lines[example.row].removeprefix(b"\xef\xbb\xbf")) if suffix == "jsonl" else None
            check_example(example, row, form, tokenizer)
