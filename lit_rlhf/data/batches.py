"""What the offline loader hands to a training step, and how a part of it becomes tensors."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lit_rlhf.data.samples import Example


class Batch:
    """One micro-batch on this rank, with the counts of the whole window it belongs to.

    No dataclass: for a 16-bit precision Lightning would copy it leaf by leaf, every token id of it.

    Args:
        parts: The examples of each forward; as many parts as on every other rank, so some may be empty.
        num_examples: Examples of the whole window, over all its micro-batches and all ranks.
        num_tokens: Tokens that count in the loss, likewise.
        closes_window: Whether the optimiser steps after this micro-batch.
        window: Where an algorithm asked for it: this rank's examples of the whole window, each with one of another row.
        row_length: Where sequences are packed: tokens that a row of a forward may hold, pads included.
    """

    def __init__(
        self,
        *,
        parts: list[list[Example]],
        num_examples: int,
        num_tokens: int,
        closes_window: bool,
        window: list[tuple[Example, Example]] | None = None,
        row_length: int | None = None,
    ) -> None:
        self.parts = parts
        self.num_examples = num_examples
        self.num_tokens = num_tokens
        self.closes_window = closes_window
        self.window = window or []
        self.row_length = row_length

    def to(self, device: Any, **_: Any) -> "Batch":
        """Stay as it is: Lightning asks every batch to move, and tensors are made part by part in the step."""
        return self


def collate(examples: Sequence[Example], pad_id: int) -> dict[str, Tensor]:
    """Lay out some examples as right-padded rows; B examples, S samples, T tokens.

    The samples of an example stand together, in its own order: of pairs, rows ``0::2`` are the chosen ones.

    Args:
        examples: At least one.
        pad_id: Fills the right end of short rows; never looked at again.

    Returns:
        ``input_ids``, ``attention_mask`` and ``score_mask`` (both bool, from lengths, never from ids) ``[S, T]``;
        ``example`` ``[S]``, each row's example; ``prompt_lengths`` ``[S]``; ``row`` ``[B]``, numbers in the data;
        where examples have them ``label`` ``[B]``, and ``step_labels`` and ``step_mask`` ``[S, T]``.

    >>> from lit_rlhf.data.samples import Sample
    >>> batch = collate([Example(0, [Sample([5, 6, 7], [False, True, True], 1)]),
    ...                  Example(1, [Sample([5, 6], [False, True], 1)])], pad_id=0)
    >>> batch["input_ids"].tolist(), batch["score_mask"].tolist()
    ([[5, 6, 7], [5, 6, 0]], [[False, True, True], [False, True, False]])
    """
    samples = [sample for example in examples for sample in example.samples]
    lengths = torch.tensor([len(sample) for sample in samples])
    width = int(lengths.max())
    input_ids = torch.full((len(samples), width), pad_id)
    score_mask = torch.zeros(len(samples), width, dtype=torch.bool)
    for place, sample in enumerate(samples):
        input_ids[place, : len(sample)] = torch.as_tensor(sample.ids, dtype=torch.long)
        score_mask[place, : len(sample)] = torch.as_tensor(sample.mask, dtype=torch.bool)
    batch = {
        "input_ids": input_ids,
        "attention_mask": torch.arange(width) < lengths[:, None],
        "score_mask": score_mask,
        "example": torch.tensor([place for place, example in enumerate(examples) for _ in example.samples]),
        "prompt_lengths": torch.tensor([sample.num_prompt for sample in samples]),
        "row": torch.tensor([example.row for example in examples]),
    }
    if any(example.label is not None for example in examples):  # a pair without a margin has margin 0
        labels = [0.0 if example.label is None else example.label for example in examples]
        batch["label"] = torch.tensor(labels, dtype=torch.float32)
    if any(example.steps for example in examples):
        batch["step_labels"] = torch.zeros(len(samples), width)
        batch["step_mask"] = torch.zeros(len(samples), width, dtype=torch.bool)
        for place, example in enumerate(examples):  # a stepwise example has one sample
            for position, label in example.steps:
                batch["step_labels"][place, position] = label
                batch["step_mask"][place, position] = True
    return batch
