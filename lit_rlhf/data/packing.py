"""Packing: several sequences in one row, so that forwards compute tokens instead of pads.

A packed row is as long as the window's longest sequence and no longer: attention costs the square of a row's length,
and the rows of a forward are never wider than without packing.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

Row = list[int]  # numbers of the sequences that share a row
Parts = list[list[Row]]  # the rows of each forward of a micro-batch


def first_fit(lengths: Sequence[int], row_length: int) -> list[Row]:
    """Fill rows by first fit, longest sequences first (ties by number); each goes into the first row with room.

    Args:
        lengths: Tokens of each sequence, none above ``row_length``.
        row_length: Tokens a row may hold.

    Returns:
        The sequences of each row, in the order they stand there. The result depends on the arguments alone.

    >>> first_fit([3, 8, 5, 2, 2], row_length=8)
    [[1], [2, 0], [3, 4]]
    """
    rows: list[Row] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        row = next((row for row, left in enumerate(room) if left >= lengths[number]), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(row_length)
        rows[row].append(number)
        room[row] -= lengths[number]
    return rows


def plan_packed(lengths: Sequence[int], num_pieces: int, max_tokens: int | None) -> list[Parts]:
    """Pack a window into rows and deal the rows out.

    Args:
        lengths: Tokens of each sequence of the window.
        num_pieces: Micro-batches × ranks. Their numbers of rows differ by at most one.
        max_tokens: Tokens, pads included, that one forward may hold; a single row may hold more.

    Returns:
        The forwards of each piece. One without rows has one forward without rows.

    >>> plan_packed([3, 8, 5, 2, 2], num_pieces=2, max_tokens=8)
    [[[[1]], [[2, 0]]], [[[3, 4]]]]
    """
    row_length = max(lengths, default=1)
    rows = first_fit(lengths, row_length)
    at_once = len(rows) if max_tokens is None else max_tokens // row_length
    pieces: list[Parts] = []
    start = 0
    for piece in range(num_pieces):
        end = start + len(rows) // num_pieces + (piece < len(rows) % num_pieces)
        mine = rows[start:end]
        pieces.append([mine[at : at + max(at_once, 1)] for at in range(0, len(mine), max(at_once, 1))] or [[]])
        start = end
    return pieces


def padded_size(rows: Sequence[Row], lengths: Sequence[int]) -> int:
    """Count the tokens of a forward, pads included.

    >>> padded_size([[1], [2, 0]], lengths=[3, 8, 4])
    16
    """
    return len(rows) * max((sum(lengths[number] for number in row) for row in rows), default=0)


class Packed(NamedTuple):
    """S right-padded sequences laid out in R rows of L tokens."""

    input_ids: Tensor
    """``[R, L]``."""
    attention_mask: Tensor
    """``[R, L]`` bool, False on pads."""
    score_mask: Tensor
    """``[R, L]`` bool; never on a sequence's first token."""
    position_ids: Tensor
    """``[R, L]``, from 0 in each sequence; a pad is one by itself."""
    sequence_mask: Tensor
    """``[S, T]`` bool, the sequences' own tokens."""
    places: Tensor
    """``[N]``, where each of their tokens stands among the ``R * L``."""

    def unpack(self, values: Tensor) -> Tensor:
        """Bring ``[R, L]`` back to ``[S, T]``, zero on pads; differentiable."""
        unpacked = values.new_zeros(self.sequence_mask.shape)
        return unpacked.masked_scatter(self.sequence_mask, values.flatten()[self.places])


def pack_rows(
    input_ids: Tensor, attention_mask: Tensor, score_mask: Tensor, rows: Sequence[Row], pad_id: int
) -> Packed:
    """Lay right-padded sequences out in rows.

    Args:
        input_ids: ``[S, T]``.
        attention_mask: ``[S, T]`` bool, True on a sequence's own tokens, which come first.
        score_mask: ``[S, T]`` bool, the tokens to score.
        rows: Which sequences stand in each row, every one once.
        pad_id: Fills the ends of the rows.

    Raises:
        ValueError: If a first token is to be scored: in its row it would be predicted by another sequence.
    """
    if score_mask[:, 0].any():
        raise ValueError("score_mask is True at column 0, but nothing predicts the first token of a sequence")
    lengths: list[int] = attention_mask.sum(-1).tolist()
    num_rows, row_length = len(rows), max(sum(lengths[number] for number in row) for row in rows)
    starts = [0] * len(lengths)
    for place, row in enumerate(rows):
        for number, before in zip(row, accumulate((lengths[n] for n in row), initial=0), strict=False):
            starts[number] = place * row_length + before
    positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    places = (torch.tensor(starts, device=input_ids.device)[:, None] + positions)[attention_mask]

    def lay_out(values: Tensor, fill: int) -> Tensor:
        laid_out = values.new_full((num_rows * row_length,), fill)
        laid_out[places] = values[attention_mask]
        return laid_out.view(num_rows, row_length)

    return Packed(
        input_ids=lay_out(input_ids, pad_id),
        attention_mask=lay_out(attention_mask, False),
        score_mask=lay_out(score_mask, False),
        position_ids=lay_out(positions, 0),
        sequence_mask=attention_mask,
        places=places,
    )
