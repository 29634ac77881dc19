"""The offline loader: windows planned from lengths alone, the same on any number of ranks, resumed exactly."""

from collections.abc import Iterator, Sequence

from lit_rlhf.data.batches import Batch
from lit_rlhf.data.loader import permutation
from lit_rlhf.data.packing import Parts, padded_size, plan_packed
from lit_rlhf.data.samples import Example, sizes_of
from lit_rlhf_callbacks.windows import cut_window, split_by_budget

_MEASURED = 100  # windows whose padding is measured


class WindowLoader:
    """Yield the micro-batches of each window, a function of (seed, epoch) and of nothing that happened before.

    Every rank plans every window for all ranks, so the ranks need not talk: a window is sorted by length, cut into
    micro-batches × ranks pieces of balanced padded size, and neighbours in that order, which are of like size, go
    through the ranks' forwards at the same time. An epoch's last window may hold fewer examples, never fewer
    micro-batches; no example is dropped.

    Args:
        examples: All of them, on every rank.
        examples_per_window: Examples of one optimiser step, over all ranks.
        num_micro_batches: Micro-batches per window and rank (``accumulate_grad_batches``).
        max_tokens: Padded tokens one forward may hold; a larger micro-batch comes in parts. None: one part always.
        seed: Orders the examples, together with the epoch.
        rank: This process's place among the data-parallel ones.
        world_size: How many data-parallel processes there are.
        shuffle: False keeps the order of the data, for evaluation.
        with_strangers: Hand out each window's examples with one of another row beside each (`Batch.window`).
        packing: Plan forwards for sequences that share rows; each example has one.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        examples_per_window: int,
        num_micro_batches: int = 1,
        max_tokens: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool = True,
        with_strangers: bool = False,
        packing: bool = False,
    ) -> None:
        self.examples, self.sizes = examples, sizes_of(examples)
        self.examples_per_window, self.num_micro_batches = examples_per_window, num_micro_batches
        self.max_tokens, self.seed, self.shuffle = max_tokens, seed, shuffle
        self.rank, self.world_size = rank, world_size
        self.with_strangers, self.packing = with_strangers, packing
        self.epoch, self.cursor = 0, 0
        self.sampler, self.batch_sampler = self, None  # where Lightning looks for set_epoch, and whether it shuffles

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's order; Lightning calls this before each one."""
        self.epoch = epoch

    @property
    def num_windows(self) -> int:
        """Optimiser steps of one epoch."""
        return -(-len(self.examples) // self.examples_per_window)

    def __len__(self) -> int:
        return self.num_windows * self.num_micro_batches

    def __iter__(self) -> Iterator[Batch]:
        order = self._order()
        planned = -1
        # An evaluation cut short, by limit_val_batches or Lightning's sanity check, must not move the next one's rows.
        for number in range(self.cursor if self.shuffle else 0, len(self)):
            window, slot = divmod(number, self.num_micro_batches)
            if window != planned:
                start = window * self.examples_per_window
                batches = self._window(order[start : start + self.examples_per_window])
                planned = window
            self.cursor = (number + 1) % len(self)  # 0 at the end, or a resume would skip the whole next epoch
            yield batches[slot]

    def _order(self) -> list[int]:
        num_examples = len(self.examples)
        return permutation(num_examples, "epoch", self.seed, self.epoch) if self.shuffle else list(range(num_examples))

    def _window(self, members: list[int]) -> list[Batch]:
        """Plan one window for all ranks and return this rank's micro-batches."""
        lengths = [self.sizes.lengths[m] for m in members]
        pieces = self._plan(lengths, self.packing)
        num_tokens = sum(self.sizes.num_tokens[m] for m in members)
        mine_in_window = [
            members[place]
            for parts in pieces[self.rank :: self.world_size]
            for rows in parts
            for row in rows
            for place in row
        ]
        window = [(self.examples[m], self._stranger(m)) for m in mine_in_window] if self.with_strangers else []
        batches = []
        for slot in range(self.num_micro_batches):
            side_by_side = pieces[slot * self.world_size : (slot + 1) * self.world_size]
            mine = side_by_side[self.rank]
            mine = mine + [[]] * (max(map(len, side_by_side)) - len(mine))
            batches.append(
                Batch(
                    parts=[[self.examples[members[place]] for row in rows for place in row] for rows in mine],
                    num_examples=len(members),
                    num_tokens=num_tokens,
                    closes_window=slot == self.num_micro_batches - 1,
                    window=window,
                    row_length=max(lengths) if self.packing else None,
                )
            )
        return batches

    def _stranger(self, member: int) -> Example:
        """Return the next example of another row, wherever in the data it stands, so on any number of ranks."""
        row, other = self.examples[member].row, (member + 1) % len(self.examples)
        while self.examples[other].row == row and other != member:
            other = (other + 1) % len(self.examples)
        return self.examples[other]

    def padding(self, packing: bool) -> float:
        """Return the share of pads among the tokens of an epoch's forwards; of a long one, its beginning's."""
        order, num_tokens, num_padded = self._order(), 0, 0
        for start in range(0, min(len(order), _MEASURED * self.examples_per_window), self.examples_per_window):
            lengths = [self.sizes.lengths[m] for m in order[start : start + self.examples_per_window]]
            num_tokens += sum(lengths)
            num_padded += sum(padded_size(part, lengths) for parts in self._plan(lengths, packing) for part in parts)
        return 1 - num_tokens / num_padded

    def _plan(self, lengths: list[int], packing: bool) -> list[Parts]:
        """Cut a window of examples of these lengths into the forwards of its micro-batches, for all ranks."""
        num_pieces = self.num_micro_batches * self.world_size
        if packing:
            return plan_packed(lengths, num_pieces, self.max_tokens)
        return [
            [[[piece[place]] for place in part] for part in self._cut([lengths[place] for place in piece])]
            for piece in cut_window(lengths, num_pieces)
        ]

    def _cut(self, lengths: list[int]) -> list[list[int]]:
        if self.max_tokens is None or not lengths:
            return [list(range(len(lengths)))]
        return split_by_budget(lengths, max(self.max_tokens // self.sizes.samples_per_example, 1))

    def state_dict(self) -> dict[str, int]:
        """Say where the next batch starts."""
        return {"cursor": self.cursor}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved place."""
        self.cursor = state["cursor"]
