"""Several sources in one: all of them, or each with its share."""

from collections import Counter

import pytest

from lit_rlhf.data import SupervisedData
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture
def sources(write):
    return [
        write([{"text": f"{name}{n}"} for n in range(num)], f"{name}.jsonl") for name, num in [("a", 60), ("b", 20)]
    ]


def letters(data, part="train"):
    data.setup("fit")
    return Counter(row.record.completions[0][0] for row in data.loaded[part])


def test_a_list_puts_sources_together(sources):
    assert letters(SupervisedData(train=sources, num_eval=0)) == {"a": 60, "b": 20}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((0.5, 0.5), {"a": 20, "b": 20}), ((3, 1), {"a": 60, "b": 20}), ((6, 1), {"a": 60, "b": 10})],
)
def test_weights_give_each_source_its_share_and_repeat_nothing(sources, weights, expected):
    data = SupervisedData(train=dict(zip(sources, weights, strict=True)), num_eval=0)
    assert letters(data) == expected
    assert len({row.number for row in data.loaded["train"]}) == sum(expected.values())


def test_rows_are_held_out_of_every_source_and_numbered_through(sources):
    data = SupervisedData(train=sources)
    assert letters(data, "eval") == {"a": 6, "b": 2}
    numbers = [row.number for part in data.loaded.values() for row in part]
    assert sorted(numbers) == list(range(80))
    assert data.where(60).endswith("b.jsonl, row 1")


def test_a_weight_that_is_not_positive_is_refused(sources):
    with pytest.raises(UserError, match="weights must be positive"):
        SupervisedData(train={sources[0]: 1.0, sources[1]: 0.0}).setup("fit")


def test_a_task_can_be_mixed_with_a_file(sources):
    data = SupervisedData(train={"builtin:arithmetic": 1.0, sources[1]: 1.0}, eval="builtin:arithmetic", num_eval=10)
    data.setup("fit")
    assert len(data.loaded["train"]) == 40
    assert len(data.loaded["eval"]) == 10
