"""What preflight says of data that would train wrongly without an error."""

import pytest
from tokenizers.processors import TemplateProcessing

from lit_rlhf.data import StepwiseData, SupervisedData
from lit_rlhf.data.preflight import announce, preflight, show_sample
from lit_rlhf.data.samples import Sample

EOS = (2,)
CHAT = {"messages": [{"role": "user", "content": "Hi\n"}, {"role": "assistant", "content": "Yo"}]}
NEVER_STOPS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

CLOSES_WITH_USER = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}<user>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture
def check(write, tokenizer):
    def find(row, template=None, eos_ids=EOS, data_class=SupervisedData, **settings):
        if template is not None:
            tokenizer.chat_template = template
        data = data_class(train=write([row]), **settings)
        data.setup("fit")
        data.tokenise(tokenizer)
        return preflight(data, eos_ids)

    return find


def test_sound_data_has_facts_and_no_warnings(check):
    found = check(CHAT)
    assert found.warnings == found.refusals == []
    assert found.facts["supervised tokens per sequence"] == "min 3, median 3, max 3"
    assert found.facts["chat template"] == "the model's own; it marks what the assistant generates"
    assert found.facts["stop token"] == "<eos> (ends generation)"
    assert found.facts["BOS"] == "<bos> first, once, in 1 of 1 sequences"


@pytest.mark.parametrize(
    ("row", "settings", "warning"),
    [
        (CHAT, {"mask": "none"}, "every token of every sequence counts"),
        ({"text": "abc"}, {}, "every token of every sequence counts"),
        (CHAT, {"template": NEVER_STOPS}, "1 of 1 sequences teach no stop token"),
        ({"prompt": "a", "completion": "b<eos>c"}, {}, "1 of 1 sequences have a stop token inside"),
    ],
)
def test_each_trap_has_its_warning(check, row, settings, warning):
    [said] = check(row, **settings).warnings
    assert warning in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("row", "template", "stop"),
    [
        (CHAT, None, "<eos>"),
        (CHAT, CLOSES_WITH_USER, "<user>"),
        (
            {"prompt": "a", "completion": "b"},
            CLOSES_WITH_USER,
            "<eos>",
        ),  # plain text ends in EOS, whatever the template
    ],
)
def test_the_stop_token_is_the_one_that_the_rows_end_with(check, row, template, stop):
    found = check(row, template=template, eos_ids=(0,))
    assert found.warnings == []
    assert found.facts["stop token"] == f"{stop} (the run adds it to what ends generation)"


def test_where_no_stop_is_taught_there_is_none(check):
    assert check(CHAT, template=NEVER_STOPS).facts["stop token"] == "none is taught"


def test_plain_rows_need_no_chat_template(check, tokenizer):
    tokenizer.chat_template = None
    found = check({"prompt": "a", "completion": "b"})
    assert (found.facts["stop token"], found.warnings) == ("<eos> (ends generation)", [])


@pytest.mark.filterwarnings("ignore:data")
def test_completions_cut_short_have_a_warning(check):
    [said] = check({"prompt": "a", "completion": "b" * 50}, max_length=16).warnings
    assert "1 of 1 completions are cut at 16 tokens" in said


def test_a_template_without_the_bos_that_text_gets_has_a_warning(check, tokenizer):
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<bos> $A", special_tokens=[("<bos>", 1)])
    [said] = check(CHAT, template=tokenizer.chat_template.replace("{{- bos_token }}", "")).warnings
    assert "the tokenizer puts '<bos>' before plain text" in said


def test_steps_need_no_stop_token(check):
    row = {"prompt": "q", "completions": ["a", "b"], "labels": [True, False]}
    assert check(row, data_class=StepwiseData).warnings == []


def test_what_is_found_is_said_before_the_first_update(write, ready, caplog):
    data = ready(SupervisedData(train=write([CHAT]), mask="none"))
    with pytest.warns(UserWarning, match="every token of every sequence counts"), caplog.at_level("INFO"):
        announce(preflight(data, EOS), data)
    assert "⟦<user>Hi⏎\n<assistant>Yo<eos>⟧" in caplog.text


def test_a_sample_is_spelled_out_with_its_mask_and_special_tokens(write, ready):
    data = ready(SupervisedData(train=write([CHAT])))
    text = show_sample(data.train_examples[0].samples[0], data.renderer)
    assert text.plain == "<bos><user>Hi⏎\n<assistant>⟦Yo<eos>⟧"
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["Yo"] == "green"
    assert styles["<eos>"] == "green bold"
    assert styles["<bos><user>"] == "dim bold"


def test_letters_of_several_tokens_stay_whole(ready):
    data = ready(SupervisedData(options={"num_rows": 1}))
    ids = data.renderer.pieces(["é語"])[0]
    assert len(ids) == 5
    assert show_sample(Sample(ids, [False] * 5, 0), data.renderer).plain == "é語"


def test_a_long_sample_is_shown_without_its_middle(ready):
    data = ready(SupervisedData(options={"num_rows": 1}))
    ids = data.renderer.pieces(["a" * 50 + "b" * 50])[0]
    text = show_sample(Sample(ids, [False] + [True] * 99, 0), data.renderer, max_tokens=10).plain
    assert text == "a⟦aaaa … 90 tokens … bbbbb⟧"
