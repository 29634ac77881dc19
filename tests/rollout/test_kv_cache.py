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


def test_keys_are_kept_in_the_precision_of_the_values():
    cache = RowCache(max_length=8)
    for num_new in (3, 1):
        keys, values = cache.update(tokens(2, num_new), tokens(2, num_new).bfloat16(), 0)
        assert keys.dtype == values.dtype == torch.bfloat16
    assert torch.equal(keys, torch.cat([tokens(2, 3), tokens(2, 1)], dim=2).bfloat16())


def test_rounding_under_autocast_is_that_of_a_concatenating_cache(backbone):
    input_ids = torch.tensor([[9, 30, 17, 8, 55]])
    mask, positions = torch.ones(1, 5, dtype=torch.bool), torch.arange(5)[None]

    def logits_of_last(cache):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            backbone.next_token_logits(input_ids[:, :3], mask[:, :3], positions[:, :3], cache)
            backbone.next_token_logits(input_ids[:, 3:4], mask[:, :4], positions[:, 3:4], cache)
            return backbone.next_token_logits(input_ids[:, 4:], mask, positions[:, 4:], cache)

    assert torch.equal(logits_of_last(RowCache(max_length=8)), logits_of_last(DynamicCache()))
