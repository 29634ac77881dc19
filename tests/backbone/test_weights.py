import pytest
import torch
from torch import nn

from lit_rlhf.backbone import weight_hash
from lit_rlhf.backbone import weights as weights_module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("chunk", [7, 2**22])
def test_any_changed_element_and_any_swap_changes_the_hash(monkeypatch, dtype, chunk):
    monkeypatch.setattr(weights_module, "_CHUNK", chunk)
    torch.manual_seed(0)
    layer = nn.Linear(5, 4).to(dtype)
    before = weight_hash(layer)
    flat = layer.weight.data.view(-1)
    start = flat.clone()
    bits = flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    for i in range(20):
        bits[i] ^= 1
        assert weight_hash(layer) != before
        flat.copy_(start)
    for i in range(20):
        for j in range(i):
            flat[[i, j]] = flat[[j, i]]
            assert weight_hash(layer) != before or start[i] == start[j]
            flat.copy_(start)
    assert weight_hash(layer) == before


def test_chunks_do_not_change_the_hash(monkeypatch):
    layer = nn.Linear(50, 40)
    whole = weight_hash(layer)
    monkeypatch.setattr(weights_module, "_CHUNK", 7)
    assert weight_hash(layer) == whole


def test_hash_tells_names_shapes_types_and_buffers_apart():
    ones = nn.Parameter(torch.ones(6))
    variants = [
        nn.ParameterDict({"a": ones}),
        nn.ParameterDict({"b": ones}),
        nn.ParameterDict({"a": nn.Parameter(ones.view(2, 3))}),
        nn.ParameterDict({"a": nn.Parameter(ones.double())}),
        nn.ParameterDict({"a": ones}),
    ]
    variants[-1].register_buffer("extra", torch.ones(1))
    assert len({weight_hash(variant) for variant in variants}) == len(variants)


def test_same_values_same_hash():
    torch.manual_seed(3)
    first = nn.Linear(4, 4)
    second = nn.Linear(4, 4)
    assert weight_hash(first) != weight_hash(second)
    second.load_state_dict(first.state_dict())
    assert weight_hash(first) == weight_hash(second)
