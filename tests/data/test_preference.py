"""Preference data in each of TRL's forms."""

import pytest

from lit_rlhf.data import PreferenceData
from lit_rlhf_callbacks.errors import UserError

USER, GOOD, BAD = (
    {"role": role, "content": text} for role, text in [("user", "Hi"), ("assistant", "Yo"), ("assistant", "No")]
)
CHAT_PAIR = ["<bos><user>Hi<assistant>[Yo<eos>]", "<bos><user>Hi<assistant>[No<eos>]"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, ["a[b<eos>]", "a[c<eos>]"]),
        ({"chosen": "Q: a A: b", "rejected": "Q: a A: c"}, ["Q: a A:[ b<eos>]", "Q: a A:[ c<eos>]"]),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, CHAT_PAIR),
        ({"prompt": [USER], "chosen": "Yo", "rejected": "No"}, CHAT_PAIR),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, CHAT_PAIR),
        ({"prompt": "Hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, CHAT_PAIR),
    ],
)
def test_pairs(write, ready, shown, row, expected):
    data = ready(PreferenceData(train=write([row])))
    assert data.kind == "paired"
    assert [shown(sample) for sample in data.train_examples[0].samples] == expected


def test_a_margin_becomes_the_label(write, ready):
    data = ready(PreferenceData(train=write([{"prompt": "a", "chosen": "b", "rejected": "c", "margin": 2}])))
    assert data.train_examples[0].label == 2.0


@pytest.mark.parametrize("scores", [[1, 3, 2], [0.1, 9.0, 0.2]])
def test_rankings_come_best_first(write, ready, shown, scores):
    source = write([{"prompt": "p", "completions": ["a", "b", "c"], "scores": scores}])
    data = ready(PreferenceData(train=source))
    assert data.kind == "ranked"
    assert [shown(sample) for sample in data.train_examples[0].samples] == ["p[b<eos>]", "p[c<eos>]", "p[a<eos>]"]


def test_of_equal_scores_the_first_is_kept(write, ready):
    data = ready(PreferenceData(train=write([{"prompt": "p", "completions": ["a", "b", "c"], "scores": [1, 1, 0]}])))
    assert len(data.train_examples[0].samples) == 2


@pytest.mark.parametrize("label", [True, 1])
def test_single_completions_have_a_label(write, ready, shown, label):
    data = ready(PreferenceData(train=write([{"prompt": "a", "completion": "b", "label": label}])))
    assert data.kind == "unpaired"
    assert shown(data.train_examples[0].samples[0]) == "a[b<eos>]"
    assert data.train_examples[0].label == 1.0


def test_pairs_are_taken_apart_for_an_algorithm_that_needs_single_completions(write, ready, shown):
    data = ready(PreferenceData(train=write([{"prompt": "a", "chosen": "b", "rejected": "c"}])), kind="unpaired")
    assert [(shown(e.samples[0]), e.label) for e in data.train_examples] == [("a[b<eos>]", 1.0), ("a[c<eos>]", 0.0)]


def test_pairs_are_rankings_of_two(write, ready):
    data = ready(PreferenceData(train=write([{"prompt": "a", "chosen": "b", "rejected": "c"}])), kind="ranked")
    assert len(data.train_examples[0].samples) == 2


def test_single_completions_cannot_become_pairs(write, ready):
    with pytest.raises(UserError, match="needs paired data"):
        ready(PreferenceData(train=write([{"prompt": "a", "completion": "b", "label": True}])), kind="paired")


def test_pairs_identical_within_the_length_are_dropped_and_counted(write, tokenizer):
    rows = [{"prompt": "p", "chosen": "c" * 30 + "x", "rejected": "c" * 30 + "y"}]
    rows += [{"prompt": "p", "chosen": f"c{n}", "rejected": "r"} for n in range(20)]
    data = PreferenceData(train=write(rows), max_length=16)
    data.setup("fit")
    with pytest.warns(UserWarning, match="1 of 21 rows dropped: completions identical within 16 tokens"):
        data.tokenise(tokenizer)
    assert len(data.train_examples) == 20


@pytest.mark.parametrize(("form", "num_samples"), [("paired", 2), ("ranked", 4), ("unpaired", 1)])
def test_the_builtin_task_comes_in_every_form(ready, shown, form, num_samples):
    data = ready(PreferenceData(form=form, options={"num_rows": 60}))
    assert {len(example.samples) for example in data.train_examples} == {num_samples}
    answers = {row.number: row.row["answer"] for row in data.loaded["train"]}
    for example in data.train_examples:
        right = [shown(sample).endswith(f"[{answers[example.row]}<eos>]") for sample in example.samples]
        assert right == ([bool(example.label)] if form == "unpaired" else [True] + [False] * (num_samples - 1))


def test_samples_of_a_pair_stand_together_in_the_loader(ready):
    data = ready(PreferenceData(options={"num_rows": 10}, examples_per_update=4))
    data.num_micro_batches = 2
    batches = list(data.train_dataloader())
    assert len(batches) == 6
    assert sum(len(part) for batch in batches for part in batch.parts) == 10
    assert sum(batch.closes_window for batch in batches) == 3
