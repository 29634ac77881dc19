"""Examples survive the flat arrays, the disk and the cache as they were."""

import pytest

from lit_rlhf.data import PreferenceData, tokenising
from lit_rlhf.data.samples import Example, Sample, sizes_of
from lit_rlhf.data.table import ExampleTable

EXAMPLES = [
    Example(4, [Sample([1, 2, 3], [False, True, True], 1), Sample([1, 9], [False, True], 1)], 0.5),
    Example(7, [Sample([5, 6], [False, True], 0)], None, [(1, 1.0)]),
]


def plain(example):
    samples = [([int(i) for i in s.ids], [bool(m) for m in s.mask], s.num_prompt) for s in example.samples]
    return example.row, samples, example.label, list(example.steps)


def test_examples_come_back_as_they_were(tmp_path):
    table = ExampleTable.build(EXAMPLES)
    table.save(tmp_path)
    for read in (table, ExampleTable.load(tmp_path)):
        assert [plain(example) for example in read] == [plain(example) for example in EXAMPLES]
        assert read.sizes == sizes_of(EXAMPLES)
        assert read.fingerprint == table.fingerprint
        assert plain(read[-1]) == plain(EXAMPLES[-1])
        assert len(read[0:2]) == 2
        with pytest.raises(IndexError):
            read[2]


def test_an_empty_table_has_no_sizes():
    assert len(ExampleTable.build([])) == 0
    assert ExampleTable.build([]).sizes == sizes_of([])


@pytest.mark.parametrize("change", ["ids", "mask", "label"])
def test_the_fingerprint_changes_with_a_token_a_mask_and_a_label(change):
    table, other = ExampleTable.build(EXAMPLES), ExampleTable.build(EXAMPLES)
    other.columns[change][0] = other.columns[change][0] == 0
    assert table.fingerprint != other.fingerprint


def test_large_data_is_tokenised_once_and_mapped(ready, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_RLHF_CACHE", str(tmp_path))
    direct = ready(PreferenceData(options={"num_rows": 20}))
    monkeypatch.setattr(tokenising, "is_large", lambda records: True)
    first = ready(PreferenceData(options={"num_rows": 20}))
    assert len(list((tmp_path / "tokenised").iterdir())) == 2
    monkeypatch.setattr(tokenising, "save_cached", lambda *args: pytest.fail("tokenised again"))
    second = ready(PreferenceData(options={"num_rows": 20}))
    assert [plain(e) for e in second.train_examples] == [plain(e) for e in direct.train_examples]
    assert first.fingerprint == second.fingerprint == direct.fingerprint
    assert second.tallies == direct.tallies


@pytest.mark.filterwarnings("ignore:data")  # prompts are cut
@pytest.mark.parametrize(
    "change", [{"max_length": 20}, {"form": "ranked"}, {"limit": 19}, {"options": {"num_rows": 20, "seed": 1}}]
)
def test_changed_settings_never_find_the_cache(ready, tmp_path, monkeypatch, change):
    monkeypatch.setenv("LIT_RLHF_CACHE", str(tmp_path))
    monkeypatch.setattr(tokenising, "is_large", lambda records: True)
    ready(PreferenceData(options={"num_rows": 20}, num_eval=1))
    before = len(list((tmp_path / "tokenised").iterdir()))
    ready(PreferenceData(**{"options": {"num_rows": 20}, "num_eval": 1, **change}))
    assert len(list((tmp_path / "tokenised").iterdir())) > before


def test_a_changed_template_never_finds_the_cache(ready, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_RLHF_CACHE", str(tmp_path))
    monkeypatch.setattr(tokenising, "is_large", lambda records: True)
    first = ready(PreferenceData(options={"num_rows": 20}))
    tokenizer.chat_template = tokenizer.chat_template.replace("'<user>'", "'<user> '")
    assert ready(PreferenceData(options={"num_rows": 20})).fingerprint != first.fingerprint
