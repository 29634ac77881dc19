"""The multiple-choice sentinels: what is shipped is what the generator makes, and every item is sound."""

import json

import pytest

from lit_rlhf.builtin import SENTINELS, sentinel_file
from lit_rlhf.builtin.sentinel_items import letter_order, made_up_facts, write_sentinels


@pytest.mark.parametrize("name", SENTINELS)
def test_the_shipped_file_is_what_the_generator_makes(name, tmp_path):
    write_sentinels(tmp_path)
    assert sentinel_file(name).read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("name", SENTINELS)
def test_every_item_has_four_different_options_and_a_right_one(name):
    items = [json.loads(line) for line in sentinel_file(name).read_text(encoding="utf-8").splitlines()]
    assert len({item["question"] for item in items}) == len(items) >= 60
    for item in items:
        assert len(set(item["options"])) == 4
        assert 0 <= item["answer"] < 4
    assert {item["answer"] for item in items} == {0, 1, 2, 3}


def test_letters_are_in_the_order_of_the_alphabet():
    right = {item["question"]: item["options"][item["answer"]] for item in letter_order()}
    assert right["Which letter comes after k?"] == "l"
    assert right["Which letter comes before k?"] == "j"
    assert right["Which letter is between x and z?"] == "y"


def test_each_fact_has_its_own_answer():
    answers = [item["options"][item["answer"]] for item in made_up_facts()]
    assert len(set(answers)) == len(answers) == 60


def test_an_unknown_set_is_named_with_what_exists():
    with pytest.raises(ValueError, match="did you mean 'letter_order'"):
        sentinel_file("letter_orders")
