import json
import math
from pathlib import Path

import pytest
import torch

from lit_rlhf_callbacks import UserError
from lit_rlhf_callbacks.sentinel_result import summarise
from lit_rlhf_callbacks.sentinel_scoring import Option, Scorer, encode_item, score_options
from lit_rlhf_callbacks.sentinel_sets import Item, as_item, load_sets, read_items
from lit_rlhf_callbacks.sentinel_stats import accuracy_and_se, paired_change

MMLU = Path(__file__).parents[2].parent / "shared" / "data" / "mmlu" / "mmlu_1000.jsonl"


class Letters:
    """A tokenizer of one token per letter; with ``merges`` it joins some pairs, as byte-pair encoding does."""

    chat_template = "{user}"
    eos_token_id = 0

    def __init__(self, merges: tuple[str, ...] = ()) -> None:
        self.merges = merges

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        ids, place = [], 0
        while place < len(text):
            width = 2 if text[place : place + 2] in self.merges else 1
            ids.append(sum(ord(c) * 1000**i for i, c in enumerate(text[place : place + width])))
            place += width
        return {"input_ids": ids}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(f"<{m['content']}>" for m in messages) + "!" * add_generation_prompt


@pytest.mark.parametrize("answer", [1, "B", "4"])
def test_an_answer_is_an_index_a_letter_or_a_text(answer: object) -> None:
    assert as_item({"question": "2 + 2 =", "options": ["3", "4"], "answer": answer}, "x") == ("2 + 2 =", ["3", "4"], 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"options": ["a", "b"], "answer": 0}, "no question"),
        ({"question": "q", "answer": 0}, "at least two different options"),
        ({"question": "q", "options": ["a", "a"], "answer": 0}, "at least two different options"),
        ({"question": "q", "options": ["a", "b"], "answer": "C"}, "is no index, letter or text of its 2 options"),
        ({"question": "q", "options": ["a", "b"], "answer": 2}, "is no index"),
        ({"question": "q", "options": ["a", "b"]}, "None is no index"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    (tmp_path / "set.jsonl").write_text(json.dumps({"question": "q", "options": ["a", "b"], "answer": 0}) + "\n")
    with (tmp_path / "set.jsonl").open("a") as file:
        file.write("\n" + json.dumps(row) + "\n")

    with pytest.raises(UserError, match=f"set.jsonl, line 3: .*{message}"):
        read_items(str(tmp_path / "set.jsonl"))


def test_sets_come_from_files_and_from_the_module(tmp_path: Path) -> None:
    class Module:
        def sentinel_sets(self):
            return {"own": [{"question": "q", "options": ["a", "b"], "answer": 0}]}

    file = tmp_path / "other.jsonl"
    file.write_text('{"question": "r", "choices": ["a", "b"], "answer": "A"}\n')

    assert list(load_sets(None, Module())) == ["own"]
    assert list(load_sets([str(file), "builtin:own"], Module())) == ["other", "own"]
    assert load_sets(None, object()) == {}
    with pytest.raises(UserError, match="no set builtin:oewn; there are: builtin:own"):
        load_sets(["builtin:oewn"], Module())
    with pytest.raises(UserError, match=r"no file nowhere\.jsonl"):
        load_sets(["nowhere.jsonl"], Module())
    with pytest.raises(UserError, match="two sets are called other"):
        load_sets([str(file), str(file)], Module())


@pytest.mark.skipif(not MMLU.exists(), reason="the MMLU rows are not here")
def test_rows_of_mmlu_need_no_preparation() -> None:
    items = read_items(str(MMLU))

    assert len(items) == 1000
    assert sum(item.options == ["A", "B", "C", "D"] for item in items) >= 998


@pytest.mark.parametrize("merges", [(), ("? ", " y"), ("? ", "es")])
def test_the_question_s_tokens_are_the_same_for_all_options(merges: tuple[str, ...]) -> None:
    tokenizer = Letters(merges)
    rows = encode_item(tokenizer, Item("so? ", ["yes", "no"], 0))

    prompt = tokenizer("so?")["input_ids"]
    assert all(ids[:num_prompt] == prompt for ids, num_prompt in rows)
    answers = [tokenizer(" yes"), tokenizer(" no")]
    assert [ids[num_prompt:] for ids, num_prompt in rows] == [answer["input_ids"] for answer in answers]


def test_text_stays_as_it_is_and_messages_are_rendered() -> None:
    tokenizer = Letters()
    lines = encode_item(tokenizer, Item("so?\n", ["y"], 0))
    chat = encode_item(tokenizer, Item([{"role": "user", "content": "so?"}], ["y"], 0))

    assert lines == [Option(tokenizer("so?\ny")["input_ids"], 4)]
    assert chat == [Option([*tokenizer("<so?>!y")["input_ids"], 0], 6)]


def test_scores_do_not_depend_on_the_forwards_or_the_ranks() -> None:
    """The log-prob of token t is -t - its place, so each option's mean is known."""

    def score(tokens):
        sizes.append(tokens["input_ids"].numel())
        return -(tokens["input_ids"] + torch.arange(tokens["input_ids"].shape[1])).float()

    sizes: list[int] = []
    options = [Option(list(range(5, 5 + width)), num) for width, num in [(4, 2), (9, 8), (3, 1), (3, 2), (7, 3)]]
    expected = [-(5 + 2 * torch.arange(num, len(ids)).float()).mean().item() for ids, num in options]

    def scored(max_tokens: int, rank: int = 0, num_ranks: int = 1) -> torch.Tensor:
        return score_options(Scorer(score, max_tokens, None), options, torch.device("cpu"), rank, num_ranks)

    assert scored(100).tolist() == scored(9).tolist() == expected
    assert max(sizes[1:]) <= 9
    shares = [scored(9, rank, 2) for rank in range(2)]
    assert (shares[0] + shares[1]).tolist() == expected
    assert all(0 < share.count_nonzero() < 5 for share in shares)


def test_paired_change_by_hand() -> None:
    before = [True, True, True, False, False, True]
    now = [True, False, False, True, False, False]

    change = paired_change(before, now)
    assert (change.num_lost, change.num_gained) == (3, 1)
    assert change.change == pytest.approx(-2 / 6)
    assert change.sigma == pytest.approx(-2 / math.sqrt(4))
    assert paired_change(now, now) == (0, 0, 0, 0)
    assert accuracy_and_se(now) == (1 / 3, pytest.approx(math.sqrt(2 / 9 / 6)))


def test_sigma_is_a_standard_normal_when_nothing_changes() -> None:
    draws = torch.rand(2, 2000, 80, generator=torch.Generator().manual_seed(0)) < 0.7
    sigmas = torch.tensor(
        [paired_change(one, other).sigma for one, other in zip(*draws.tolist(), strict=True)], dtype=torch.float64
    )

    assert sigmas.mean().abs() < 0.1
    assert 0.95 < sigmas.std() < 1.05
    assert (sigmas < -3).float().mean() < 0.005


def test_a_score_that_is_no_number_is_a_wrong_answer() -> None:
    items = [Item("q", ["a", "b", "c"], 1)] * 2
    result = summarise(items, [-2.0, -1.0, -3.0] + [math.nan] * 3, start="11")

    assert result.correct == [True, False]
    assert result.record("set", 3, 0.5)["margin"] is None
    assert summarise(items[:1], [-2.0, -1.0, -3.0], None).margin == 1.0
