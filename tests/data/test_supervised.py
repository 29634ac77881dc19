"""Supervised data in each of TRL's forms, masked as asked."""

import pytest

from lit_rlhf.data import SupervisedData
from lit_rlhf_callbacks.errors import UserError

USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}
MORE = [{"role": "user", "content": "Ok?"}, {"role": "assistant", "content": "No"}]


@pytest.mark.parametrize(
    ("row", "mask", "expected"),
    [
        ({"text": "abc"}, "auto", "a[bc<eos>]"),
        ({"prompt": "ab", "completion": "c"}, "auto", "ab[c<eos>]"),
        ({"prompt": "ab", "completion": "c"}, "none", "a[bc<eos>]"),
        ({"prompt": [USER], "completion": [ASSISTANT]}, "auto", "<bos><user>Hi<assistant>[Yo<eos>]"),
        ({"prompt": [USER], "completion": "Yo"}, "completion_only", "<bos><user>Hi<assistant>[Yo<eos>]"),
        ({"prompt": [USER], "completion": [ASSISTANT]}, "none", "<bos>[<user>Hi<assistant>Yo<eos>]"),
        ({"messages": [USER, ASSISTANT]}, "auto", "<bos><user>Hi<assistant>[Yo<eos>]"),
        (
            {"messages": [USER, ASSISTANT, *MORE]},
            "assistant_only",
            "<bos><user>Hi<assistant>[Yo<eos>]<user>Ok?<assistant>[No<eos>]",
        ),
        (
            {"messages": [USER, ASSISTANT, *MORE]},
            "completion_only",
            "<bos><user>Hi<assistant>Yo<eos><user>Ok?<assistant>[No<eos>]",
        ),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}, "auto",
         "<bos><user>Hi<assistant>[Yo<eos>]"),
        ({"prompt": [USER, ASSISTANT, MORE[0]], "completion": [MORE[1]]}, "auto",
         "<bos><user>Hi<assistant>Yo<eos><user>Ok?<assistant>[No<eos>]"),
    ],
)  # fmt: skip
def test_each_form(write, ready, shown, row, mask, expected):
    data = ready(SupervisedData(train=write([row]), mask=mask))
    assert shown(data.train_examples[0].samples[0]) == expected


def test_the_builtin_task_needs_no_file_and_holds_out_other_words(ready, shown):
    data = ready(SupervisedData(options={"num_rows": 50}))
    assert shown(data.train_examples[0].samples[0]).startswith("<bos><user>reverse ")
    assert len(data.train_examples) == len(data.eval_examples) == 50
    assert not {row["answer"] for row in data.eval_rows} & {row.row["answer"] for row in data.loaded["train"]}


def test_columns_can_have_other_names(write, ready, shown):
    source = write([{"question": "1+1=", "answer": "2"}])
    data = ready(SupervisedData(train=source, columns={"prompt": "question", "completion": "answer"}))
    assert shown(data.train_examples[0].samples[0]) == "1+1=[2<eos>]"


def test_limit_is_drawn_by_the_seed_and_recorded(write, ready):
    source = write([{"prompt": f"p{n}", "completion": "c"} for n in range(30)])
    first, second = (ready(SupervisedData(train=source, limit=5)) for _ in range(2))
    assert first.data_facts() == second.data_facts()
    assert first.data_facts()["num_train"] == 5
    assert first.fingerprint != ready(SupervisedData(train=source, limit=6)).fingerprint


def test_rows_of_a_prompt_are_held_out_together(write):
    rows = [{"prompt": f"p{n // 3}", "completion": f"c{n}"} for n in range(120)]
    data = SupervisedData(train=write(rows))
    data.setup("fit")
    train, held_out = ({row.record.prompt for row in data.loaded[part]} for part in ("train", "eval"))
    assert len(data.loaded["eval"]) == 12
    assert not train & held_out


def test_held_out_rows_with_a_trained_prompt_are_said(write):
    train = write([{"prompt": "p", "completion": "c"}])
    data = SupervisedData(train=train, eval=write([{"prompt": "p", "completion": "d"}], "eval.jsonl"))
    with pytest.warns(UserWarning, match="1 of 1 held-out rows have a prompt that is trained on"):
        data.setup("fit")


def test_what_is_cut_is_counted_and_said(write, tokenizer):
    rows = [{"prompt": "p" * 30, "completion": "c"}, {"prompt": "p", "completion": "c" * 30}]
    data = SupervisedData(train=write(rows), max_length=16)
    data.setup("fit")
    with pytest.warns(UserWarning, match="cut") as said:
        data.tokenise(tokenizer)
    assert [str(warning.message) for warning in said] == [
        "data (train): 1 of 2 rows: prompt cut from the left to fit 16 tokens",
        "data (train): 1 of 2 samples: completion cut at its end, so it teaches no stop",
    ]
    overlong = data.train_examples[1].samples[0]
    assert len(overlong) == 16
    assert tokenizer.eos_token_id not in list(overlong.ids)


def test_a_row_says_where_it_comes_from(write, ready):
    sources = [write([{"text": "a"}, {"text": "b"}], "one.jsonl"), write([{"text": "c"}], "two.jsonl")]
    data = ready(SupervisedData(train=sources))
    assert [data.where(example.row).rpartition("/")[2] for example in data.train_examples] == [
        "one.jsonl, row 1",
        "one.jsonl, row 2",
        "two.jsonl, row 1",
    ]


def test_a_template_that_rewrites_earlier_turns_is_refused_with_counts(write, tokenizer):
    tokenizer.chat_template = (
        "{% for m in messages %}<user>{{ '!' if loop.last }}{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<user>{% endif %}"
    )
    data = SupervisedData(train=write([{"messages": [USER, ASSISTANT, *MORE]}] * 3))
    data.setup("fit")
    with (
        pytest.warns(UserWarning, match="3 of 3 rows dropped: the chat template changes the prompt"),
        pytest.raises(UserError, match="3 of 3 rows have prompts that are not the beginning") as error,
    ):
        data.tokenise(tokenizer)
    assert "\n" not in str(error.value)


def test_rows_in_which_nothing_counts_are_refused_with_counts(write, tokenizer):
    tokenizer.chat_template = (
        "{% for m in messages %}<user>{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}<user>{% endif %}"
    )
    data = SupervisedData(train=write([{"messages": [USER, ASSISTANT]}] * 3))
    data.setup("fit")
    with (
        pytest.warns(UserWarning, match="3 of 3 rows dropped: no token counts in the loss"),
        pytest.raises(UserError, match="3 of 3 rows have no token that counts"),
    ):
        data.tokenise(tokenizer)


def test_a_template_can_be_borrowed(write, tokenizer, shown):
    tokenizer.chat_template = None
    rows = write([{"messages": [USER, ASSISTANT]}])
    data = SupervisedData(train=rows)
    data.setup("fit")
    with pytest.raises(UserError, match=r"set data\.chat_template_source"):
        data.tokenise(tokenizer)
    data = SupervisedData(train=rows, chat_template_source="builtin:tiny")
    data.setup("fit")
    data.tokenise(tokenizer)
    assert shown(data.train_examples[0].samples[0]) == "<bos><user>Hi<assistant>[Yo<eos>]"


def test_other_data_is_refused_by_an_algorithm_that_needs_pairs(ready):
    with pytest.raises(UserError, match="needs paired data"):
        ready(SupervisedData(options={"num_rows": 5}), kind="paired")
