"""The embedded model and its tokenizer: an ordinary folder, half good at reversal, sure of its side skills."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_rlhf.builtin import model_folder
from lit_rlhf.builtin.byte_tokenizer import build_tokenizer
from lit_rlhf.builtin.measure import answer_logps, encode, measure_choice, measure_pass_at_1
from lit_rlhf.builtin.sentinel_items import letter_order, made_up_facts
from lit_rlhf.builtin.tasks import load_task


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(model_folder("tiny"))


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(model_folder("tiny")).eval()


@pytest.fixture(scope="module")
def record():
    return json.loads((model_folder("tiny") / "training.json").read_text(encoding="utf-8"))


def test_the_folder_is_small_and_fp32_with_a_long_context(model):
    assert sum(file.stat().st_size for file in model_folder("tiny").iterdir()) < 5e6
    assert model.dtype == torch.float32
    assert model.config.max_position_embeddings == 4096
    assert 0.8e6 < model.num_parameters() < 0.9e6


def test_special_tokens_differ_and_the_configs_agree(model, tokenizer):
    ids = tokenizer.convert_tokens_to_ids(["<pad>", "<bos>", "<eos>", "<user>", "<assistant>"])
    assert ids == [0, 1, 2, 3, 4]
    assert len(tokenizer) == model.config.vocab_size == 261
    for config in (model.config, model.generation_config, tokenizer):
        assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)


def test_the_shipped_tokenizer_is_the_one_the_code_builds(tokenizer):
    built = build_tokenizer(4096)
    assert built.get_vocab() == tokenizer.get_vocab()
    assert built.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("text", ["reverse abcd", "  two  spaces , and .\n\ttab ", "héllo 日本 🙂", ""])
def test_any_text_comes_back_byte_for_byte(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "reverse abcd"},
    {"role": "assistant", "content": "dcba"},
    {"role": "user", "content": "again"},
    {"role": "assistant", "content": "abcd"},
]


def test_the_template_puts_bos_once_and_eos_after_every_answer(tokenizer):
    text = tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert text == "<bos><user>Be brief.\nreverse abcd<assistant>dcba<eos><user>again<assistant>abcd<eos>"
    assert tokenizer.apply_chat_template(CHAT, return_dict=True)["input_ids"].count(tokenizer.bos_token_id) == 1


def test_the_generation_prompt_is_a_token_prefix_of_the_whole(tokenizer):
    whole = tokenizer.apply_chat_template(CHAT, return_dict=True)["input_ids"]
    for turn in (2, 4):
        prompt = tokenizer.apply_chat_template(CHAT[:turn], add_generation_prompt=True, return_dict=True)["input_ids"]
        assert whole[: len(prompt)] == prompt


def test_the_template_marks_what_the_assistant_said(tokenizer):
    out = tokenizer.apply_chat_template(CHAT, return_dict=True, return_assistant_tokens_mask=True)
    said = [token for token, own in zip(out["input_ids"], out["assistant_masks"], strict=True) if own]
    assert tokenizer.decode(said) == "dcba<eos>abcd<eos>"


def test_an_unknown_role_is_refused(tokenizer):
    with pytest.raises(Exception, match="not 'tool'"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)


def test_reversal_is_half_learned_and_mostly_mixed(model, tokenizer, record):
    measured = measure_pass_at_1(model, tokenizer, load_task("reverse_words", "eval"))
    assert 0.30 < measured.pass_at_1 < 0.50
    assert measured.mixed_groups > 0.6
    assert measured.pass_at_1 == pytest.approx(record["pass_at_1"], abs=1e-3)


def test_reversal_is_not_memorised(model, tokenizer, record):
    train = measure_pass_at_1(model, tokenizer, load_task("reverse_words", "train", num_rows=512))
    assert train.pass_at_1 == pytest.approx(record["pass_at_1"], abs=0.06)


def test_both_side_skills_are_known(model, tokenizer):
    assert measure_choice(model, tokenizer, letter_order()) >= 0.9
    assert measure_choice(model, tokenizer, made_up_facts()) >= 0.9


def test_exact_pass_at_1_is_what_sampling_gives(model, tokenizer):
    rows = load_task("reverse_words", "eval", min_length=6, max_length=6, num_rows=256)
    examples = [encode(tokenizer, row["prompt"], row["answer"]) for row in rows]
    torch.manual_seed(0)
    drawn = model.generate(torch.tensor([prompt for prompt, _ in examples]), max_new_tokens=7, do_sample=True, top_k=0)
    right = (drawn[:, -7:] == torch.tensor([answer for _, answer in examples])).all(1).float().mean().item()
    assert right == pytest.approx(measure_pass_at_1(model, tokenizer, rows).pass_at_1, abs=0.09)  # 3 standard errors


def test_answers_score_the_same_alone_and_in_a_batch(model, tokenizer):
    examples = [encode(tokenizer, "reverse abc", "cba"), encode(tokenizer, "What is the capital of Mitki?", "Gridox")]
    with torch.no_grad():
        together, answer_mask = answer_logps(model, examples)
        alone, _ = answer_logps(model, examples[:1])
    assert answer_mask.sum(1).tolist() == [4, 7]
    torch.testing.assert_close(together[0].sum(), alone[0].sum())


def test_an_unknown_model_is_named_with_what_exists():
    with pytest.raises(ValueError, match=r"did you mean 'tiny'\? \(known: tiny\)"):
        model_folder("tinny")
