import pytest
import torch
from transformers.cache_utils import DynamicCache

from lit_rlhf.rollout.kv_cache import RowCache


def tokens(num_rows, num_new):
    shape = (num_rows, 2, num_new, 4)
    return torch.randn(shape, generator=torch.Generator().manual_seed(num_rows * 100 + num_new))


@pytest.mark.parametrize("max_length", [9, 100])
def test_holds_what_a_concatenating_cache_holds(max_length):
    cache, reference = RowCache(max_length), DynamicCache()
    rows = 3
    for step, num_new in enumerate((3, 1, 2, 1, 1, 1)):
        for layer in range(2):
            keys, values = tokens(rows, num_new) + layer, -tokens(rows, num_new) - layer
            for ours, theirs in zip(
                cache.update(keys, values, layer), reference.update(keys, values, layer), strict=True
            ):
                assert torch.equal(ours, theirs)
        assert cache.get_seq_length() == reference.get_seq_length()
        assert cache.get_mask_sizes(1, 0) == reference.get_mask_sizes(1, 0)
        if step in (0, 3):
            index = torch.tensor([0, 0, 1, 2, 2]) if step == 0 else torch.tensor([1, 4])
            cache.batch_select_indices(index)
            reference.batch_select_indices(index)
            rows = len(index)


def test_writing_does_not_move_the_past():
    cache = RowCache(max_length=64)
    cache.update(tokens(2, 8), tokens(2, 8), 0)
    cache.batch_select_indices(torch.tensor([0, 1]))
    places = set()
    for _ in range(56):
        keys, _ = cache.update(tokens(2, 1), tokens(2, 1), 0)
        places.add(keys.data_ptr())
    assert len(places) == 3  # room for 16, 32, 64
