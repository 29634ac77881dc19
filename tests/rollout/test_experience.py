"""Rows of experience: masks from lengths, pads that may be anything, and rows cut to their own longest."""

import pytest
import torch

from lit_rlhf.rollout.experience import Experience, from_completions
from lit_rlhf.rollout.protocol import Completion

PAD = 2  # also the end token


def completion(prompt_id, num_prompt, num_completion, finish="stop"):
    ids = [10 + n for n in range(num_completion - 1)] + [PAD if finish == "stop" else 9]
    logps = [-0.5 - n for n in range(num_completion)]
    return Completion(prompt_id, 0, [PAD] * num_prompt, ids, logps, finish)


@pytest.fixture
def experience():
    completions = [completion(7, 2, 3), completion(5, 4, 1), completion(7, 1, 6, "length")]
    return from_completions(completions, [4, 0, 5], PAD)


def test_prompt_and_completion_lie_side_by_side(experience):
    assert experience.input_ids.tolist() == [
        [2, 2, 10, 11, 2, 2, 2],
        [2, 2, 2, 2, 2, 2, 2],
        [2, 10, 11, 12, 13, 14, 9],
    ]
    assert experience.prompt_ids.tolist() == [7, 5, 7]
    assert experience.order.tolist() == [4, 0, 5]
    assert experience.truncated_mask.tolist() == [False, False, True]


def test_masks_come_from_lengths_and_not_from_pads(experience):
    assert experience.attention_mask.sum(-1).tolist() == [5, 5, 7]
    assert experience.completion_mask.int().tolist() == [
        [0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 1, 1, 1, 1, 1, 1],
    ]


def test_the_samplers_log_probs_lie_on_their_tokens(experience):
    assert torch.equal(experience.sampler_logps != 0, experience.completion_mask)
    assert experience.sampler_logps[0, 2:5].tolist() == [-0.5, -1.5, -2.5]


def test_what_is_not_trained_counts_in_no_loss(experience):
    experience.trained_mask = ~experience.truncated_mask
    assert experience.loss_mask.sum(-1).tolist() == [3, 1, 0]
    assert experience.completion_mask.sum(-1).tolist() == [3, 1, 6]


def test_rows_are_cut_to_the_longest_among_them(experience):
    experience.old_logps = torch.arange(21.0).view(3, 7)
    rows = experience.rows([1, 0])
    assert rows.input_ids.shape == rows.old_logps.shape == rows.advantages.shape == (2, 5)
    assert rows.order.tolist() == [0, 4]
    assert rows.old_logps.tolist() == experience.old_logps[[1, 0], :5].tolist()
    assert rows.ref_logps is None


def test_no_rows():
    empty = from_completions([], [], PAD)
    assert len(empty) == 0
    assert empty.completion_mask.shape == (0, 1)
    assert empty.input_ids.dtype == empty.lengths.dtype == torch.long
    assert len(empty.rows([])) == 0


def test_a_state_dict_makes_the_same_experience_again(experience):
    experience.ref_logps = torch.randn(3, 7)
    again = Experience(**experience.state_dict())
    assert "old_logps" not in experience.state_dict()
    for name, value in experience.state_dict().items():
        assert torch.equal(getattr(again, name), value)
