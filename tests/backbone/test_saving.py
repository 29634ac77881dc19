"""A saved policy is an ordinary folder that gives the same log-probs anywhere."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_rlhf.backbone import Backbone, LoRA, weight_hash


def trained(folder: str, **settings) -> Backbone:
    """A loaded backbone whose trainable weights have moved."""
    backbone = Backbone(folder, **settings)
    backbone.load()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in backbone.policy.parameters():
            if weight.requires_grad:
                weight.add_(0.02 * torch.randn_like(weight))
    return backbone


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("tied", "lora"),
    [
        (True, None),
        (False, None),
        (True, LoRA(r=2)),
        (False, LoRA(r=2)),
        (False, LoRA(r=2, target_modules=["wte", "c_attn", "embed_tokens", "q_proj"])),
    ],
)
def test_a_reloaded_model_scores_the_same(make_folder, rows, tmp_path, architecture, lora, tied):
    backbone = trained(make_folder(architecture, scale=3.0, tie_word_embeddings=tied), lora=lora)
    before, logps = weight_hash(backbone.policy), backbone.score_tokens(*rows).logps
    backbone.save_model(tmp_path / "saved")
    assert weight_hash(backbone.policy) == before  # saving disturbed nothing
    assert torch.equal(backbone.score_tokens(*rows).logps, logps)

    reloaded = Backbone(str(tmp_path / "saved"))
    reloaded.load()
    torch.testing.assert_close(reloaded.score_tokens(*rows).logps, logps, atol=1e-6 if lora is None else 1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_an_adapter_alone_finds_its_base_again(make_folder, rows, tmp_path, architecture):
    backbone = trained(make_folder(architecture, scale=3.0), lora=LoRA(r=2))
    backbone.save_model(tmp_path / "adapter", merge_adapter=False)
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    reloaded = Backbone(str(tmp_path / "adapter"))
    reloaded.load()
    logps = backbone.score_tokens(*rows).logps
    torch.testing.assert_close(reloaded.score_tokens(*rows).logps, logps, atol=1e-5, rtol=0)


def test_weights_read_as_bf16_are_saved_in_the_type_they_were_trained_in(make_folder, rows, tmp_path):
    for lora in (None, LoRA(r=2)):
        backbone = trained(make_folder(dtype="bfloat16"), lora=lora)
        backbone.save_model(tmp_path / "saved")
        assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").dtype == torch.float32
        reloaded = Backbone(str(tmp_path / "saved"))
        reloaded.load()
        logps = backbone.score_tokens(*rows).logps
        torch.testing.assert_close(reloaded.score_tokens(*rows).logps, logps, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_fresh_process_with_transformers_alone_scores_the_same(make_folder, rows, tmp_path):
    backbone = trained(make_folder(scale=3.0), lora=LoRA(r=2))
    backbone.save_model(tmp_path / "saved")
    ids = rows.input_ids[2:].tolist()
    script = (
        "import sys, json, torch; from transformers import AutoModelForCausalLM as M;"
        "m = M.from_pretrained(sys.argv[1]).eval(); ids = torch.tensor(json.loads(sys.argv[2]));"
        "print(json.dumps(torch.log_softmax(m(ids).logits[0], -1)[range(7), ids[0, 1:]].tolist()))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "saved"), json.dumps(ids)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = backbone.score_tokens(*rows).logps[2, 2:]
    torch.testing.assert_close(torch.tensor(json.loads(output))[1:], expected, atol=1e-5, rtol=0)


def test_the_folder_holds_tokenizer_template_and_every_stop_token(make_folder, tmp_path):
    backbone = trained(make_folder("gpt2"))
    backbone.eos_ids = (2, 7)
    backbone.save_model(tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.get_vocab() == backbone.tokenizer.get_vocab()
    assert tokenizer.chat_template == backbone.tokenizer.chat_template
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert model.generation_config.eos_token_id == [2, 7]
    assert model.config.resid_pdrop == 0.1  # as it was read, though training ran without dropout
    assert model.dtype == torch.float32


def test_a_run_directory_stands_for_its_model(make_folder, rows, tmp_path):
    backbone = trained(make_folder())
    run = tmp_path / "run"
    backbone.save_model(run / "model")
    (run / "run.json").write_text("{}")
    again = Backbone(str(run))
    again.load()
    assert again.start_hash == weight_hash(backbone.policy)
