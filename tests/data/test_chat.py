"""Prompts as users write them become the tokens the model is conditioned on."""

import pytest
from transformers import AutoTokenizer

from lit_rlhf import builtin
from lit_rlhf.data.chat import as_completion, render_prompt
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(builtin.model_folder("tiny"))


def test_text_is_tokenised_as_it_is(tokenizer):
    assert tokenizer.decode(render_prompt(tokenizer, "reverse abc", "row 1")) == "reverse abc"


def test_messages_end_where_the_answer_begins(tokenizer):
    ids = render_prompt(tokenizer, [{"role": "user", "content": "reverse abc"}], "row 1")
    assert tokenizer.decode(ids) == "<bos><user>reverse abc<assistant>"
    assert all(isinstance(token, int) for token in ids)


def test_there_is_one_beginning_of_sequence_however_the_tokenizer_adds_its_own(tokenizer):
    """A template that writes BOS and a tokenizer that adds one must not make two."""
    ids = render_prompt(tokenizer, [{"role": "user", "content": "a"}], "row 1")
    assert ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ([], "a prompt is text, or a list of messages"),
        (5, "a prompt is text, or a list of messages .* got '5'"),
        ({"role": "user", "content": "a"}, "a prompt is text, or a list of messages"),
        ([{"content": "a"}], "a prompt is text, or a list of messages"),
        ([{"role": "wizard", "content": "a"}], "the model's chat template refuses the prompt .*'wizard'"),
    ],
)
def test_what_is_no_prompt_is_said_in_one_line_with_its_place(tokenizer, prompt, message):
    with pytest.raises(UserError, match=f"row 3: {message}") as error:
        render_prompt(tokenizer, prompt, "row 3")
    assert "\n" not in str(error.value)


def test_a_conversation_needs_a_template_and_text_does_not(tokenizer):
    tokenizer.chat_template = None
    assert render_prompt(tokenizer, "abc", "row 1")
    with pytest.raises(UserError, match=r"row 1: the prompt is a conversation, but .* no chat template") as error:
        render_prompt(tokenizer, [{"role": "user", "content": "abc"}], "row 1")
    assert "\n" not in str(error.value)


def test_a_completion_has_the_form_of_its_prompt():
    assert as_completion("1 + 1 =", "2") == "2"
    assert as_completion([{"role": "user", "content": "1 + 1"}], "2") == [{"role": "assistant", "content": "2"}]
