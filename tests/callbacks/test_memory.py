"""The formulas against what is really allocated."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, LlamaForCausalLM

from lit_rlhf.builtin import model_folder
from lit_rlhf_callbacks.memory import (
    ModelShape,
    Precision,
    activation_bytes,
    adam_bytes,
    count_lora_parameters,
    gradient_bytes,
    kv_cache_bytes,
    logits_bytes,
    read_shape,
    static_bytes_per_parameter,
    weight_bytes,
)

SHAPES = {
    "tiny": {},
    "wide": {"hidden_size": 192, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 6},
    "grouped": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 24, "num_hidden_layers": 3},
    "untied": {"vocab_size": 1000, "num_hidden_layers": 2, "tie_word_embeddings": False},
}


def make(name: str, precision: Precision = "32-true", lora_rank: int = 0) -> tuple[nn.Module, ModelShape]:
    defaults = {
        "vocab_size": 261,
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "tie_word_embeddings": True,
    }
    config = LlamaConfig(**{**defaults, **SHAPES[name]})
    model: nn.Module = LlamaForCausalLM(config)
    if precision == "bf16-true":
        model = model.bfloat16()
    if lora_rank:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    counts = [sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (False, True)]
    return model.train(), read_shape(config, *counts)


def saved_bytes(model: nn.Module, ids: Tensor, mask: Tensor, precision: Precision, whole: bool = False) -> int:
    """Bytes of distinct storages that autograd keeps of a forward, without weights and 16-bit copies of weights."""
    kept: list[Tensor] = []
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        if whole:
            inner(input_ids=ids, attention_mask=mask, labels=ids)
        else:
            hidden = inner.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            kept.append(hidden.bfloat16() if precision == "bf16-mixed" else hidden)  # the lm head keeps its input
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    total = sum(size for place, size in storages.items() if place not in weights)
    if precision == "bf16-mixed":
        total -= sum(2 * p.numel() for p in inner.model.layers.parameters() if p.dim() == 2)
    return total


def batch(num_rows: int, length: int, is_padded: bool) -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, 200, (num_rows, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if is_padded:
        mask[0, length // 2 :] = 0
    return ids, mask


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_activations(name: str, precision: Precision, is_padded: bool) -> None:
    model, shape = make(name, precision)
    for num_rows, length in [(2, 64), (4, 160)]:
        measured = saved_bytes(model, *batch(num_rows, length, is_padded), precision)
        predicted = activation_bytes(shape, num_rows, length, precision, is_padded=is_padded)
        assert predicted == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "bf16-mixed"])
def test_activations_of_adapters(precision: Precision) -> None:
    model, shape = make("tiny", precision, lora_rank=8)
    measured = saved_bytes(model, *batch(4, 64, False), precision)
    if precision == "bf16-mixed":  # the adapters' own 16-bit copies
        measured -= 2 * shape.num_trainable
    predicted = activation_bytes(shape, 4, 64, precision, lora_rank=8)
    assert predicted == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_activations_with_checkpointing(precision: Precision) -> None:
    """After the forward each block's input is kept; one block in full comes on top when the backward reaches it."""
    model, shape = make("tiny", precision)
    one_layer, _ = make("tiny", precision)
    one_layer.model.layers = one_layer.model.layers[:1]
    ends = activation_bytes(shape._replace(num_layers=0), 4, 64, precision)
    layer = saved_bytes(one_layer, *batch(4, 64, False), precision) - ends
    model.gradient_checkpointing_enable({"use_reentrant": False})
    measured = saved_bytes(model, *batch(4, 64, False), precision) + layer

    assert activation_bytes(shape, 4, 64, precision, checkpointing=True) == pytest.approx(measured, rel=0.02)
    assert measured < 0.6 * activation_bytes(shape, 4, 64, precision)


def test_all_logits_at_once() -> None:
    """Kept is the log-softmax, one of the four copies that exist at some time."""
    model, _ = make("untied")
    ids, mask = batch(4, 64, False)
    measured = saved_bytes(model, ids, mask, "32-true", whole=True) - saved_bytes(model, ids, mask, "32-true")

    assert logits_bytes(4 * 64, 1000, max_logits=None) / 4 == pytest.approx(measured, rel=0.03)
    assert logits_bytes(10**6, 1000) == 4 * 4 * 2**24


@pytest.mark.parametrize("lora_rank", [0, 8])
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_static_bytes_exactly(name: str, precision: Precision, lora_rank: int) -> None:
    model, shape = make(name, precision, lora_rank)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    model(input_ids=torch.arange(12).view(2, 6), labels=torch.arange(12).view(2, 6)).loss.backward()
    optimizer.step()

    size = 4 if lora_rank else static_bytes_per_parameter(precision) // 4  # adapters are fp32 on any base
    base = 4 if precision == "32-true" else 2
    states: list[Any] = [value for state in optimizer.state.values() for value in state.values()]
    num_frozen = shape.num_parameters - shape.num_trainable
    assert sum(p.nbytes for p in model.parameters()) == weight_bytes(num_frozen, base) + weight_bytes(
        shape.num_trainable, size
    )
    assert sum(p.grad.nbytes for p in trained) == gradient_bytes(shape.num_trainable, size)
    assert sum(state.nbytes for state in states) == adam_bytes(shape.num_trainable, size) + 4 * len(trained)


@pytest.mark.parametrize("name", list(SHAPES))
def test_counting_from_a_config_alone(name: str) -> None:
    model, shape = make(name)
    assert read_shape(model.config) == shape

    adapted, with_adapters = make(name, lora_rank=8)
    assert with_adapters.num_trainable == count_lora_parameters(shape, 8)
    assert adapted is not model


def test_the_embedded_model_and_other_configs() -> None:
    folder = model_folder("tiny")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert read_shape(AutoConfig.from_pretrained(folder)).num_parameters == model.num_parameters()

    gpt2 = read_shape(GPT2Config(), num_parameters=124_439_808)
    assert gpt2[2:] == (768, 12, 12, 12, 64, 50257, 3072)


def test_kv_cache() -> None:
    model, shape = make("grouped")
    cache = model(input_ids=torch.arange(40).view(2, 20), use_cache=True).past_key_values
    measured = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)

    assert kv_cache_bytes(shape, 2, 20, bytes_per_value=4) == measured
