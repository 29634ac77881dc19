"""The embedded sets reach the callback through the module, and it scores them as they were made."""

from lit_rlhf import SFT
from lit_rlhf.builtin import SENTINELS, load_sentinels, sentinel_file
from lit_rlhf.builtin.measure import encode
from lit_rlhf_callbacks.sentinel_scoring import encode_item
from lit_rlhf_callbacks.sentinel_sets import load_sets, read_items


def test_a_run_of_the_embedded_model_offers_them() -> None:
    sets = load_sets(None, SFT())

    assert tuple(sets) == SENTINELS
    assert [len(items) for items in sets.values()] == [74, 60]


def test_they_are_tokenised_as_the_model_learned_them() -> None:
    tokenizer = SFT().tokenizer
    for name in SENTINELS:
        file_items = read_items(str(sentinel_file(name)))
        for item, plain in zip(load_sets(None, SFT())[name], file_items, strict=True):
            expected = [encode(tokenizer, plain.question, option) for option in plain.options]
            assert [(ids[:n], ids[n:]) for ids, n in encode_item(tokenizer, item)] == expected
            assert item[1:] == plain[1:]


def test_other_models_have_none() -> None:
    module = SFT()
    module.backbone.base_name = "some/model"

    assert module.sentinel_sets() == {}
    assert load_sentinels().keys() == set(SENTINELS)
