"""The prompt gives way from its left, the completion is kept, and what cannot be kept is counted."""

import pytest

from lit_rlhf.data.samples import Sample
from lit_rlhf.data.truncation import truncate

BOS = 1


def sample(num_prompt, num_completion, first=100, bos=False):
    ids = list(range(first, first + num_prompt)) + list(range(200, 200 + num_completion))
    if bos:
        ids[0] = BOS
    return Sample(ids, [False] * num_prompt + [True] * num_completion, num_prompt)


def cut(*samples, max_length):
    return truncate(samples, [s.num_prompt for s in samples], max_length, BOS)


def test_what_fits_is_left_alone():
    whole = sample(4, 4)
    assert cut(whole, max_length=8) == ([whole], False, 0)


def test_the_prompt_loses_its_left_and_the_completion_is_kept():
    [short], prompt_cut, num_completions_cut = cut(sample(6, 3), max_length=5)
    assert short == Sample([104, 105, 200, 201, 202], [False, False, True, True, True], 2)
    assert (prompt_cut, num_completions_cut) == (True, 0)


def test_bos_stays_first():
    [short], _, _ = cut(sample(6, 3, bos=True), max_length=6)
    assert short.ids == [BOS, 104, 105, 200, 201, 202]


@pytest.mark.parametrize("bos", [False, True])
def test_a_completion_as_long_as_allowed_leaves_one_token_to_predict_it_from(bos):
    [short], _, num_completions_cut = cut(sample(6, 6, bos=bos), max_length=7 + bos)
    assert short.ids[-6:] == list(range(200, 206))
    assert short.num_prompt == 1 + bos
    assert num_completions_cut == 0


def test_a_completion_too_long_by_itself_loses_its_end():
    [short], prompt_cut, num_completions_cut = cut(sample(5, 30), max_length=12)
    assert len(short.ids) == 12
    assert short.ids[:3] == [102, 103, 104]  # a quarter is left for the prompt
    assert short.ids[3:] == list(range(200, 209))
    assert (prompt_cut, num_completions_cut) == (True, 1)


def test_both_samples_of_a_pair_keep_the_same_prompt():
    chosen, rejected = cut(sample(6, 2), sample(6, 5), max_length=8).samples
    assert chosen.ids[: chosen.num_prompt] == rejected.ids[: rejected.num_prompt] == [103, 104, 105]
    assert rejected.ids[3:] == [200, 201, 202, 203, 204]


def test_a_turn_whose_beginning_is_cut_away_is_not_learned():
    ids = list(range(10))
    mask = [False, False, True, True, True, False, False, True, True, True]
    [short], _, _ = truncate([Sample(ids, mask, 2)], [7], 7, bos_id=None)
    assert short == Sample([3, 4, 5, 6, 7, 8, 9], [False] * 4 + [True] * 3, 4)


def test_plain_text_is_cut_at_its_end():
    [short], prompt_cut, num_completions_cut = truncate([Sample([5] * 9, [False] + [True] * 8, 0)], [1], 4, None)
    assert short == Sample([5] * 4, [False, True, True, True], 0)
    assert (prompt_cut, num_completions_cut) == (False, 1)
