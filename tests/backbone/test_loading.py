"""What is read from a model folder, and what is refused in one line."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, GenerationConfig
from transformers.models.llama import modeling_llama

from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf_callbacks.errors import UserError


def refusal(folder: str, **settings) -> str:
    with pytest.raises(UserError) as error:
        Backbone(folder, **settings).load()
    message = str(error.value)
    assert "\n" not in message
    return message


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_constructor_reads_settings_but_no_weights(make_folder):
    folder = make_folder(max_position_embeddings=48)
    Path(folder, "model.safetensors").unlink()
    backbone = Backbone(folder)
    assert (backbone.context_length, backbone.pad_id, backbone.eos_ids) == (48, 0, (2,))
    assert backbone.tokenizer.eos_token == "<eos>"
    assert not backbone.is_loaded
    assert "no weights" in refusal(folder)


@pytest.mark.parametrize(("listed", "expected"), [(9, (2, 9)), ([9, 2, 11], (2, 9, 11)), (None, (2,))])
def test_every_eos_is_found(make_folder, listed, expected):
    folder = make_folder()
    GenerationConfig(eos_token_id=listed).save_pretrained(folder)
    assert Backbone(folder).eos_ids == expected


def test_weights_are_fp32_and_trained_in_train_mode(make_folder):
    folder = make_folder(dtype="bfloat16")
    backbone = Backbone(folder)
    backbone.load()
    assert {weight.dtype for weight in backbone.policy.parameters()} == {torch.float32}
    assert all(module.training for module in backbone.policy.modules())


@pytest.mark.parametrize("lora", [None, LoRA(r=2)])
@pytest.mark.parametrize(("asked", "calls_per_layer"), [(True, 2), (False, 1)])
def test_gradient_checkpointing_really_recomputes(make_folder, rows, monkeypatch, lora, asked, calls_per_layer):
    calls = []
    forward = modeling_llama.LlamaMLP.forward
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: calls.append(1) or forward(self, x))
    backbone = Backbone(make_folder(), gradient_checkpointing=asked, lora=lora, reference="copy")
    backbone.load()
    calls.clear()
    backbone.score_tokens(*rows).logps.sum().backward()
    assert len(calls) == 2 * calls_per_layer
    assert any(weight.grad is not None and weight.grad.abs().max() > 0 for weight in backbone.policy.parameters())


def test_checkpointed_gradients_are_the_same(make_folder, rows):
    folder = make_folder()
    grads = []
    for asked in (True, False):
        backbone = Backbone(folder, gradient_checkpointing=asked)
        backbone.load()
        backbone.score_tokens(*rows).logps.sum().backward()
        grads.append([weight.grad for weight in backbone.policy.parameters()])
    assert all(torch.equal(first, second) for first, second in zip(*grads, strict=True))


def test_an_incomplete_model_is_refused(make_folder):
    folder = make_folder(tie_word_embeddings=False)
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    edit_json(Path(folder, "config.json"), architectures=["LlamaForCausalLM"])
    assert "lacks 1 weights of its architecture (first: lm_head.weight)" in refusal(folder)


def test_a_model_of_another_kind_is_refused(make_folder):
    folder = make_folder()
    Path(folder, "config.json").write_text('{"model_type": "t5"}')
    assert "not a causal language model" in refusal(folder)
    Path(folder, "config.json").write_text('{"model_type": "from_the_future"}')
    assert "config.json cannot be used" in refusal(folder)


def test_quantised_weights_are_refused(make_folder):
    folder = make_folder()
    edit_json(Path(folder, "config.json"), quantization_config={"quant_method": "gptq", "bits": 4})
    assert "quantised weights cannot be trained" in refusal(folder)


def test_the_embedded_model_loads_and_stops(make_rows):
    backbone = Backbone("builtin:tiny")
    backbone.load()
    ids = backbone.tokenizer.apply_chat_template(
        [{"role": "user", "content": "reverse abc"}, {"role": "assistant", "content": "cba"}], return_dict=False
    )
    assert ids[-1] in backbone.eos_ids
    logps = backbone.score_tokens(*make_rows([ids], num_prompt=len(ids) - 1)).logps
    assert -20 < logps.sum() < 0


def test_a_model_without_tokenizer_or_eos_is_refused(make_folder):
    folder = make_folder(eos_token_id=None)
    edit_json(Path(folder, "tokenizer_config.json"), eos_token=None)
    assert "has no eos_token" in refusal(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        Path(folder, file).unlink()
    assert "has no tokenizer" in refusal(folder)


def test_lora_targets_that_cannot_be_are_refused(make_folder):
    assert "lora.target_modules=['nope']" in refusal(make_folder(), lora=LoRA(target_modules=["nope"]))
    tied = make_folder(tie_word_embeddings=True)
    for end in ("embed_tokens", "lm_head"):
        assert "shares with its lm " in refusal(tied, lora=LoRA(target_modules=["q_proj", end]))


def test_an_adapter_without_a_base_is_refused(make_folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": null}')
    assert "doesn't say what it was trained on" in refusal(str(adapter))
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "/nowhere/at/all"}')
    assert "/nowhere/at/all" in refusal(str(adapter))


def test_an_incomplete_adapter_is_refused(make_folder, tmp_path):
    backbone = Backbone(make_folder(), lora=LoRA(r=2))
    backbone.load()
    backbone.save_model(tmp_path / "adapter", merge_adapter=False)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    weights = load_file(file)
    weights.popitem()
    save_file(weights, file)
    assert "lacks some of its weights" in refusal(str(tmp_path / "adapter"))
