"""A window carries its own denominators: which rows each micro-batch holds, and what every loss is divided by.

Lightning divides a micro-batch's loss by ``accumulate_grad_batches`` and DDP and FSDP2 average gradients over ranks.
A mean per micro-batch would therefore become a mean of means, and the gradient would depend on how the window was cut.
Here each micro-batch contributes a *sum* over its rows divided by the whole window's count, over all ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lit_rlhf.algorithms.ranks import gather_over_ranks, max_over_ranks, sum_over_ranks
from lit_rlhf.data.seed import keyed_generator
from lit_rlhf_callbacks.windows import cut_window, split_by_budget


@dataclass(kw_only=True)
class Slot:
    """One micro-batch on this rank.

    Attributes:
        parts: Row numbers of each forward; an empty part still runs one on a dummy row, so that ranks stay in step.
        num_tokens: Tokens that count in the loss, over the whole window and all ranks.
        num_sequences: Sequences that count, likewise.
        closes_window: Whether the optimiser steps after this micro-batch.
    """

    parts: list[list[int]]
    num_tokens: int
    num_sequences: int
    closes_window: bool


def assign_windows(orders: Sequence[int], group_size: int, num_windows: int, *key: int | str) -> dict[int, int]:
    """Deal samples out to windows, evenly and group by group, the same way however many ranks hold them.

    Args:
        orders: Every sample's place in the phase, over all ranks: ``prompt position * group_size + sample``.
        group_size: Samples per prompt.
        num_windows: How many updates share the phase.
        key: What the shuffle depends on, for example seed, phase and epoch.

    Returns:
        Each sample's window. Window sizes differ by at most one, and each group is spread over the windows.

    >>> assignment = assign_windows(range(8), group_size=4, num_windows=2)
    >>> [sum(window == w for window in assignment.values()) for w in (0, 1)]
    [4, 4]
    """
    generator = keyed_generator("windows", *key)
    groups: dict[int, list[int]] = {}
    for order in sorted(orders):
        groups.setdefault(order // group_size, []).append(order)
    dealt: list[int] = []
    positions = sorted(groups)
    for index in torch.randperm(len(positions), generator=generator).tolist():
        members = groups[positions[index]]
        dealt += [members[place] for place in torch.randperm(len(members), generator=generator).tolist()]
    return {order: place % num_windows for place, order in enumerate(dealt)}


def plan_slots(
    orders: Sequence[int],
    lengths: Sequence[int],
    num_loss_tokens: Sequence[int],
    *,
    group_size: int,
    num_epochs: int,
    num_windows: int,
    num_micro_batches: int,
    max_tokens: int | None,
    key: tuple[int | str, ...],
) -> list[Slot]:
    """Plan a whole phase: epochs × windows × micro-batches.

    Args:
        orders: Place in the phase of this rank's rows that train.
        lengths: Tokens of each, prompt included.
        num_loss_tokens: Tokens of each that count in the loss.
        group_size: Samples per prompt.
        num_epochs: How often the experience is gone through.
        num_windows: Updates per epoch of the experience.
        num_micro_batches: Micro-batches per window and rank.
        max_tokens: Padded tokens one forward may hold; a larger micro-batch is computed in parts.
        key: What the shuffle depends on.

    Returns:
        ``num_epochs * num_windows * num_micro_batches`` slots; row numbers index ``orders``.
    """
    everywhere = [order for part in gather_over_ranks(list(orders)) for order in part]
    cuts: list[list[list[int]]] = []  # one list of parts per slot
    counts: list[list[int]] = []
    for epoch in range(num_epochs):
        window_of = assign_windows(everywhere, group_size, num_windows, *key, epoch)
        for window in range(num_windows):
            rows = [row for row, order in enumerate(orders) if window_of[order] == window]
            counts.append([sum(num_loss_tokens[row] for row in rows), len(rows)])
            for micro_batch in cut_window([lengths[row] for row in rows], num_micro_batches):
                cuts.append(_parts([rows[place] for place in micro_batch], lengths, max_tokens))
    totals = sum_over_ranks(torch.tensor(counts)).tolist()
    num_parts = max_over_ranks(torch.tensor([len(parts) for parts in cuts])).tolist()
    return [
        Slot(
            parts=parts + [[] for _ in range(num_parts[slot] - len(parts))],
            num_tokens=max(totals[slot // num_micro_batches][0], 1),
            num_sequences=max(totals[slot // num_micro_batches][1], 1),
            closes_window=(slot + 1) % num_micro_batches == 0,
        )
        for slot, parts in enumerate(cuts)
    ]


def _parts(rows: list[int], lengths: Sequence[int], max_tokens: int | None) -> list[list[int]]:
    if max_tokens is None or not rows:
        return [rows]
    return [[rows[place] for place in part] for part in split_by_budget([lengths[row] for row in rows], max_tokens)]
