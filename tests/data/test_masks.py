"""Exactly the assistant's tokens count, with the one that stops each turn, whatever the template."""

import pytest
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from lit_rlhf.data.dialogue import Dialogue, NotPrefixError
from lit_rlhf.data.masks import encode_dialogues, encode_texts
from lit_rlhf.data.rendering import Renderer

MARKERS = "lit_rlhf.builtin"
NO_MARKERS = (
    "{{ bos_token }}{% for m in messages %}{{ '<user>' if m.role != 'assistant' else '<assistant>' }}"
    "{{ m.content }}{{ eos_token if m.role == 'assistant' }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CLOSER_OUTSIDE_MARKERS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<assistant>{% generation %}{{ m.content }}{% endgeneration %}"
    "{{ eos_token }}{% else %}<user>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ADDS_AT_THE_END = NO_MARKERS.replace("eos_token if m.role == 'assistant'", "'<pad>'") + (
    "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
)
NO_SPECIAL_TOKENS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
BEGINS_TURNS_ON_A_NEW_LINE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}a:\n{% generation %}{{ m.content + eos_token }}"
    "{% endgeneration %}{% else %}b:{{ m.content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}a:\n{% endif %}"
)
REWRITES_EARLIER_TURNS = NO_MARKERS.replace(
    "{{ m.content }}", "{{ '(thought)' if loop.last and m.role == 'assistant' }}{{ m.content }}"
)

TWO_TURNS = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "Ok?"},
    {"role": "assistant", "content": "No"},
]


def encode(tokenizer, template, dialogue):
    if template != MARKERS:
        tokenizer.chat_template = template
    [sample] = encode_dialogues(Renderer(tokenizer), [dialogue]).samples
    return sample


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (MARKERS, "<bos><user>Hi<assistant>[Yo<eos>]<user>Ok?<assistant>[No<eos>]"),
        (NO_MARKERS, "<bos><user>Hi\n<assistant>[Yo<eos>]\n<user>Ok?\n<assistant>[No<eos>]"),
        (CLOSER_OUTSIDE_MARKERS, "<user>Hi<assistant>[Yo<eos>]<user>Ok?<assistant>[No<eos>]"),
        (ADDS_AT_THE_END, "<bos><user>Hi<pad>\n<assistant>[Yo<pad>]\n<user>Ok?<pad>\n<assistant>[No<pad>]"),
        (NO_SPECIAL_TOKENS, "user: Hi\nassistant: [Yo\n]user: Ok?\nassistant: [No\n]"),
    ],
)
def test_every_turn_of_the_assistant_counts_with_its_closing_token(tokenizer, shown, template, expected):
    sample = encode(tokenizer, template, Dialogue(TWO_TURNS))
    assert shown(sample) == expected
    assert sample.num_prompt == list(sample.mask).index(True)


@pytest.mark.parametrize("template", [MARKERS, NO_MARKERS, CLOSER_OUTSIDE_MARKERS])
def test_turns_before_the_completion_do_not_count(tokenizer, shown, template):
    sample = encode(tokenizer, template, Dialogue(TWO_TURNS, first=2))
    assert shown(sample).endswith("<assistant>[No<eos>]")
    assert shown(sample).count("[") == 1


@pytest.mark.parametrize("template", [MARKERS, NO_MARKERS])
def test_all_tokens_but_the_first_count_when_asked(tokenizer, template):
    assert encode(tokenizer, template, Dialogue(TWO_TURNS, all_tokens=True)).mask == [False] + [True] * (
        len(encode(tokenizer, template, Dialogue(TWO_TURNS, all_tokens=True))) - 1
    )


def test_a_template_that_rewrites_earlier_turns_is_found_out(tokenizer, shown):
    assert isinstance(encode(tokenizer, REWRITES_EARLIER_TURNS, Dialogue(TWO_TURNS)), NotPrefixError)
    last_turn_only = encode(tokenizer, REWRITES_EARLIER_TURNS, Dialogue(TWO_TURNS, first=2))
    assert shown(last_turn_only).endswith("<assistant>[(thought)No<eos>]")


def test_a_template_whose_generation_prompt_is_no_prefix_is_found_out(tokenizer):
    template = NO_MARKERS.replace("%}<assistant>{%", "%}<assistant>Sure:{%")
    assert isinstance(encode(tokenizer, template, Dialogue(TWO_TURNS)), NotPrefixError)


def test_what_the_template_refuses_is_said_of_that_row_only(tokenizer):
    tool = [*TWO_TURNS[:2], {"role": "tool", "content": "3"}, TWO_TURNS[3]]
    bad, good = encode_dialogues(Renderer(tokenizer), [Dialogue(tool), Dialogue(TWO_TURNS)]).samples
    assert "roles system, user and assistant" in str(bad)
    assert good.num_prompt == 5


def test_plain_text_ends_with_one_stop_token_that_counts(tokenizer, shown):
    samples, num_apart = encode_texts(Renderer(tokenizer), ["1+1=", ""], ["2", "abc<eos>"])
    assert [shown(sample) for sample in samples] == ["1+1=[2<eos>]", "a[bc<eos>]"]
    assert num_apart == 0


def test_bos_stands_once_even_where_the_text_spells_it_out(tokenizer, shown):
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<bos> $A", special_tokens=[("<bos>", 1)])
    renderer = Renderer(tokenizer)
    samples, _ = encode_texts(renderer, ["q", "<bos>q", ""], ["a", "a", "a"])
    assert [shown(sample) for sample in samples] == ["<bos>q[a<eos>]", "<bos>q[a<eos>]", "<bos>[a<eos>]"]
    assert renderer.num_double_bos == 2  # the prompt by itself, and with its completion


@pytest.fixture
def merging():
    """A tokenizer that makes one token of two line ends, as a template may end with one and an answer begin so."""
    names = ["<eos>", "a", "b", "ab", "c", "\n", "\n\n", ":"]
    backend = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[("a", "b"), ("\n", "\n")]))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


def test_a_text_that_would_merge_with_its_completion_is_tokenised_apart(merging):
    samples, num_apart = encode_texts(Renderer(merging), ["ca", "c"], ["b", "ab"])
    assert [list(sample.ids) for sample in samples] == [[4, 1, 2, 0], [4, 3, 0]]
    assert [sample.num_prompt for sample in samples] == [2, 1]
    assert num_apart == 1


@pytest.mark.parametrize("markers", [False, True])
def test_a_turn_is_learned_behind_exactly_the_tokens_of_its_prompt(merging, shown, markers):
    merging.chat_template = BEGINS_TURNS_ON_A_NEW_LINE
    if not markers:
        merging.chat_template = BEGINS_TURNS_ON_A_NEW_LINE.replace("{% generation %}", "").replace(
            "{% endgeneration %}", ""
        )
    contents = ["c", "\nb", "b", "c"]
    turns = [{"role": ["user", "assistant"][n % 2], "content": content} for n, content in enumerate(contents)]
    [sample], num_apart = encode_dialogues(Renderer(merging), [Dialogue(turns)])
    assert num_apart == 1
    assert shown(sample, merging) == "b:c<eos>a:\n[\nb<eos>]b:b<eos>a:\n[c<eos>]"
    assert (
        list(sample.ids[: sample.num_prompt])
        == merging.apply_chat_template(turns[:1], add_generation_prompt=True, return_dict=True)["input_ids"]
    )
