"""Loaders that Lightning resumes exactly: they know their place and draw order from (seed, epoch) alone."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lit_rlhf.data.seed import keyed_generator

Row = dict[str, Any]


def permutation(num_rows: int, *key: int | str) -> list[int]:
    """Return a permutation of ``range(num_rows)`` that depends on nothing but ``key``."""
    return torch.randperm(num_rows, generator=keyed_generator(*key)).tolist()


class PhaseLoader:
    """Yield each phase's prompts once per slot, in an order that survives a resume and any number of ranks.

    Every rank cuts the same permutation rank-strided, so that a phase holds the same prompts however many ranks
    share it. The last phase of an epoch may hold fewer prompts; none is dropped.

    Args:
        rows: All prompts, on every rank.
        prompts_per_phase: How many prompts one experience is made of, over all ranks.
        num_slots: How many micro-batches each phase is trained in (see `OnlineAlgorithm.num_slots`).
        seed: Orders the prompts, together with the epoch.
        rank: This process's place among the data-parallel ones.
        world_size: How many data-parallel processes there are.
    """

    def __init__(
        self, rows: Sequence[Row], prompts_per_phase: int, num_slots: int, seed: int, rank: int, world_size: int
    ) -> None:
        self.rows, self.prompts_per_phase, self.num_slots = rows, prompts_per_phase, num_slots
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.epoch, self.cursor = 0, 0
        self.sampler = self  # where Lightning looks for set_epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's order; Lightning calls this before each one."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.rows) // self.prompts_per_phase) * self.num_slots

    def __iter__(self) -> Iterator[list[Row]]:
        order = permutation(len(self.rows), "epoch", self.seed, self.epoch)
        for batch in range(self.cursor, len(self)):
            start = batch // self.num_slots * self.prompts_per_phase
            self.cursor = (batch + 1) % len(self)  # 0 at the end, or a resume would skip the whole next epoch
            mine = order[start : start + self.prompts_per_phase][self.rank :: self.world_size]
            yield [self.rows[index] for index in mine]

    def state_dict(self) -> dict[str, int]:
        """Say where the next batch starts."""
        return {"cursor": self.cursor}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved place."""
        self.cursor = state["cursor"]


class EvalLoader:
    """Yield held-out prompts in order, the same number of batches on every rank.

    Args:
        rows: All held-out prompts.
        batch_size: Prompts per batch and rank.
        rank: This process's place.
        world_size: How many processes there are.
    """

    def __init__(self, rows: Sequence[Row], batch_size: int, rank: int, world_size: int) -> None:
        self.rows, self.stride, self.rank, self.world_size = rows, batch_size * world_size, rank, world_size

    def __len__(self) -> int:
        return -(-len(self.rows) // self.stride)

    def __iter__(self) -> Iterator[list[Row]]:
        for start in range(0, len(self.rows), self.stride):
            yield list(self.rows[start : start + self.stride][self.rank :: self.world_size])
