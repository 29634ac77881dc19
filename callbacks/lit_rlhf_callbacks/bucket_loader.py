"""A loader over somebody else's dataset whose batches hold rows of like length."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from lit_rlhf_callbacks.buckets import heaviest, padding_waste, plan_batches, shuffled

LengthFn = Callable[[Any], int]


class BucketSampler(BatchSampler):
    """One rank's batches of an epoch, as lists of row numbers.

    Args:
        lengths: tokens of each row of the dataset.
        max_tokens: padded tokens a batch may hold, or None for as many batches as the loader had.
        num_batches: batches of an epoch without ``max_tokens``, over all ranks.
        rank: this process's place among the data-parallel ones.
        num_ranks: how many there are.
        seed: orders the batches, together with the epoch.
    """

    def __init__(
        self, lengths: list[int], max_tokens: int | None, num_batches: int, rank: int, num_ranks: int, seed: int
    ) -> None:
        self.lengths, self.max_tokens, self.num_batches = lengths, max_tokens, num_batches
        self.rank, self.num_ranks, self.seed = rank, num_ranks, seed
        self.start, self.epoch = 0, -1
        self.sampler = self  # type: ignore[assignment]  # where Lightning looks for set_epoch
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Plan the epoch; Lightning calls this before each one."""
        if epoch == self.epoch:
            return
        self.epoch = epoch
        self.everybodys = plan_batches(
            self.lengths, self.max_tokens, self.num_batches, self.num_ranks, self.seed, epoch
        )
        self.batches = self.everybodys[self.rank :: self.num_ranks]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start = self.start, 0
        yield from self.batches[start:]


class BucketLoader(DataLoader[Any]):
    """A ``DataLoader`` with other batches; collating, workers and pinning are the original's.

    It saves its place, so a run resumed in the middle of an epoch goes on with the next batch.

    Args:
        original: the project's own loader.
        sampler: the batches.
    """

    def __init__(self, original: DataLoader[Any], sampler: BucketSampler) -> None:
        super().__init__(
            original.dataset,
            batch_sampler=sampler,
            collate_fn=original.collate_fn,
            num_workers=original.num_workers,
            pin_memory=original.pin_memory,
            timeout=original.timeout,
            worker_init_fn=original.worker_init_fn,
            multiprocessing_context=original.multiprocessing_context,
            generator=original.generator,
            prefetch_factor=original.prefetch_factor,
            persistent_workers=original.persistent_workers,
        )
        self.plan = sampler
        self.yielded = 0
        self._draws_seeds = original.generator is None
        before = _original_batches(original, len(sampler.lengths))
        self.num_batches_before, self.waste_before = len(before), padding_waste(sampler.lengths, before)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._draws_seeds:  # one number, and now, as any loader: a resume restores global noise before batch one
            self.generator = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        self.yielded = self.plan.start
        for batch in super().__iter__():
            self.yielded += 1
            yield batch

    def current_tokens(self) -> int:
        """Return the tokens, without padding, of the batch handed out last."""
        return sum(self.plan.lengths[row] for row in self.plan.batches[self.yielded - 1])

    def heaviest_batch(self) -> Any:
        """Return the batch of the epoch, of any rank, that needs most memory."""
        rows = heaviest(self.plan.lengths, self.plan.everybodys)
        return self.collate_fn([self.dataset[row] for row in rows])

    def state_dict(self) -> dict[str, int]:
        """Say where the next batch starts; at an epoch's end that is 0, or a resume would skip the whole next one."""
        return {"yielded": self.yielded % len(self), "num_batches": len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved place."""
        if state["num_batches"] != len(self):
            rank_zero_warn(
                f"LengthBucketing: {len(self)} batches per epoch, but {state['num_batches']} in the checkpoint; this "
                "epoch goes on at the same number, so some of its rows come twice and some not at all."
            )
        self.plan.start = state["yielded"] if state["yielded"] < len(self) else 0


def reason_to_decline(loader: Any, trainer: Trainer, length_fn: LengthFn | None) -> str | None:
    """Tell why a loader's batches cannot be replaced without changing what the project meant, or None.

    Args:
        loader: the training loader, after Lightning has shared it among ranks.
        trainer: the trainer.
        length_fn: the user's own, if any.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return "it needs a DataLoader over a map-style dataset"
    if type(loader).__iter__ is not DataLoader.__iter__ or type(loader.batch_sampler) is not BatchSampler:
        return "the loader makes its batches in a way of its own"
    shared = type(loader.sampler) is DistributedSampler
    if trainer.world_size > 1 and not shared:
        return "the loader shares rows among ranks in a way of its own"
    with_own_order = type(loader.sampler) not in (SequentialSampler, RandomSampler, DistributedSampler)
    if with_own_order or getattr(loader.sampler, "replacement", False):
        return f"the order of {type(loader.sampler).__name__} would be lost"
    if trainer.overfit_batches:  # type: ignore[attr-defined]
        return "overfit_batches wants the same batches every epoch"
    num_rows = len(loader.dataset)  # type: ignore[arg-type]
    if num_rows < max(trainer.world_size, 1):
        return f"{num_rows} rows are fewer than there are ranks"
    with isolate_rng():
        row = loader.dataset[0]
    if length_fn is None and not (isinstance(row, Mapping) and "input_ids" in row):
        return "rows have no input_ids; give length_fn, from a row of the dataset to its tokens"
    return None


def bucketed(
    loader: DataLoader[Any], trainer: Trainer, max_tokens: int | None, length_fn: LengthFn | None
) -> BucketLoader:
    """Return the loader with batches of like length; every row is read once, to measure it."""
    measure = length_fn or _num_input_ids
    with isolate_rng():  # a dataset may draw random numbers
        lengths = [max(measure(loader.dataset[row]), 1) for row in range(len(loader.dataset))]  # type: ignore[arg-type]
    num_batches = -(-len(lengths) // loader.batch_size)  # type: ignore[operator]
    share = trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0}
    seed = int(os.environ.get("PL_GLOBAL_SEED", 0))  # what Lightning takes for its own sampler
    sampler = BucketSampler(lengths, max_tokens, num_batches, share["rank"], share["num_replicas"], seed)
    return BucketLoader(loader, sampler)


def _num_input_ids(row: Any) -> int:
    return len(row["input_ids"])


def _original_batches(loader: DataLoader[Any], num_rows: int) -> list[list[int]]:
    """Return batches as the loader made them, in some order if it shuffles."""
    in_order = isinstance(loader.sampler, SequentialSampler)
    rows = list(range(num_rows)) if in_order else shuffled(num_rows, "original")
    size = loader.batch_size or 1
    return [rows[start : start + size] for start in range(0, num_rows, size)]
