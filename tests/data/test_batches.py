"""From examples to tensors: masks come from lengths, and Lightning leaves a batch alone."""

import torch
from lightning.fabric.utilities import move_data_to_device

from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample

PAD = 0


def sample(*ids, num_prompt=1):
    return Sample(list(ids), [place >= num_prompt for place in range(len(ids))], num_prompt)


def test_masks_come_from_lengths_even_where_the_pad_token_is_a_real_one():
    batch = collate([Example(0, [sample(5, PAD, PAD)]), Example(1, [sample(5, 6, 7, PAD)])], pad_id=PAD)
    assert batch["attention_mask"].tolist() == [[True, True, True, False], [True] * 4]
    assert batch["score_mask"].tolist() == [[False, True, True, False], [False, True, True, True]]


def test_the_samples_of_an_example_stand_together():
    pairs = [Example(7, [sample(1, 2), sample(1, 3, 4)], 0.5), Example(9, [sample(5, 6), sample(5, 7)], 1.5)]
    batch = collate(pairs, PAD)
    assert batch["input_ids"][0::2].tolist() == [[1, 2, 0], [5, 6, 0]]
    assert batch["example"].tolist() == [0, 0, 1, 1]
    assert batch["row"].tolist() == [7, 9]
    assert batch["label"].tolist() == [0.5, 1.5]
    assert batch["prompt_lengths"].tolist() == [1, 1, 1, 1]


def test_step_labels_stand_at_the_last_token_of_their_step():
    batch = collate([Example(0, [sample(1, 2, 3, 4)], steps=[(1, 1.0), (3, 0.0)]), Example(1, [sample(1, 2)])], PAD)
    assert batch["step_mask"].tolist() == [[False, True, False, True], [False] * 4]
    assert batch["step_labels"].tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_a_batch_without_labels_has_no_label_tensor():
    assert not {"label", "step_mask"} & collate([Example(0, [sample(1, 2)])], PAD).keys()


def test_lightning_moves_a_batch_by_leaving_it_as_it_is():
    batch = Batch(parts=[[Example(0, [sample(1, 2)])], []], num_examples=1, num_tokens=1, closes_window=True)
    assert move_data_to_device(batch, torch.device("cpu")) is batch
