"""The built-in tasks: right answers, disjoint splits, repeatable rows, one-line errors."""

import subprocess
import sys

import pytest

from lit_rlhf.builtin.tasks import load_task
from lit_rlhf.builtin.words import split_of, vocabulary


def prompts(rows):
    return [row["prompt"][-1]["content"] for row in rows]


def test_reversal_answers_are_the_words_backwards():
    rows = load_task("reverse_words", "train", num_rows=200)
    assert all(prompt == f"reverse {row['answer'][::-1]}" for prompt, row in zip(prompts(rows), rows, strict=True))


def test_train_and_held_out_words_are_disjoint_and_plenty():
    for lengths in ({}, {"min_length": 3, "max_length": 12}):
        train = prompts(load_task("reverse_words", "train", seed=1, **lengths))
        held_out = prompts(load_task("reverse_words", "eval", seed=2, **lengths))
        assert len(set(train)) == len(train) > 30_000
        assert len(set(held_out)) == len(held_out) > 500
        assert not set(train) & set(held_out)


def test_the_split_of_a_word_is_a_function_of_the_word():
    assert all(split_of(word) == "eval" for word in vocabulary(6, "eval"))
    assert all(split_of(word) == "train" for word in vocabulary(6, "train"))


def test_lengths_are_kept_and_all_of_them_occur():
    rows = load_task("reverse_words", "eval", min_length=4, max_length=6)
    assert {len(row["answer"]) for row in rows} == {4, 5, 6}
    rows = load_task("reverse_words", "eval")
    assert {len(row["answer"]) for row in rows} == {3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("name", ["reverse_words", "arithmetic"])
def test_a_seed_gives_the_same_rows_and_another_seed_others(name):
    assert load_task(name, "train", num_rows=50, seed=3) == load_task(name, "train", num_rows=50, seed=3)
    assert load_task(name, "train", num_rows=50, seed=3) != load_task(name, "train", num_rows=50, seed=4)


def test_a_number_of_rows_for_training_may_be_more_than_the_held_out_split_has():
    assert len(load_task("reverse_words", "train", num_rows=10_000)) == 10_000
    assert len(load_task("reverse_words", "eval", num_rows=10_000)) == len(load_task("reverse_words", "eval"))


def test_arithmetic_is_right_and_its_splits_disjoint():
    train, held_out = load_task("arithmetic", "train", seed=1), load_task("arithmetic", "eval", seed=2)
    assert (len(set(prompts(train))), len(set(prompts(held_out)))) == (180, 63)
    assert not set(prompts(train)) & set(prompts(held_out))
    row = next(row for row in train + held_out if row["prompt"][1]["content"] == "What is 3 - 7?")
    assert row["answer"] == "-4"
    assert row["prompt"][0] == {"role": "system", "content": "Answer with one number."}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("revers_words", "train"), {}, "did you mean 'reverse_words'"),
        (("reverse_words", "evl"), {}, "did you mean 'eval'"),
        (("reverse_words", "train"), {"max_lenght": 5}, "did you mean 'max_length'"),
        (("arithmetic", "train"), {"max_length": 5}, "known: num_rows, seed"),
        (("reverse_words", "train"), {"min_length": 9}, "min_length=9 and max_length=8"),
        (("reverse_words", "train"), {"max_length": 13}, "<= 12"),
        (("arithmetic", "train"), {"num_rows": 181}, "1 to 180 rows"),
        (("arithmetic", "eval"), {"num_rows": 0}, "num_rows=0"),
    ],
)
def test_a_mistake_gives_one_line(arguments, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_task(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_reading_tasks_imports_no_torch():
    code = "import sys, lit_rlhf.builtin.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
