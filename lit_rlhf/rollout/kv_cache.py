"""Keys and values of past tokens, in memory that is written in place."""

from functools import partial
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class InPlaceLayer(DynamicLayer):
    """One layer's keys and values, ``[B, heads, capacity, width]``, the first ``length`` of them in use.

    ``DynamicLayer`` concatenates at every token, which copies all the past each time (59 to 89 % of the time of
    decoding on a CPU). This one has room to spare and doubles it when it is used up.

    Args:
        max_length: The cache never makes room for more tokens than this.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write new tokens after the old ones.

        Args:
            key_states: ``[B, heads, new, width]``.
            value_states: Likewise.
            *args: What ``Cache.update`` hands on; not used.
            **kwargs: Likewise.

        Returns:
            Views of all keys and all values, ``[B, heads, length, width]``.
        """
        start, self.length = self.length, self.length + key_states.shape[-2]
        if start == 0:
            # Under autocast rotary embeddings leave keys in fp32, and every attention would cast all the past again.
            key_states = key_states.to(value_states.dtype)
            # A prompt's own tensors serve until the rows are chosen: `batch_select_indices` makes the room.
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        if self.length > self.keys.shape[-2]:
            self.keys = self._with_room(self.keys[:, :, :start])
            self.values = self._with_room(self.values[:, :, :start])
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        """Return how many tokens are in use."""
        return self.length

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order; a row may be named several times."""
        self.keys = self._with_room(self.keys[:, :, : self.length], indices)
        self.values = self._with_room(self.values[:, :, : self.length], indices)

    def _with_room(self, used: Tensor, rows: Tensor | None = None) -> Tensor:
        """Copy ``[B, heads, length, width]``, or some rows of it, into memory of twice the length."""
        num_rows, num_heads, length, width = used.shape
        capacity = max(self.length, min(2 * length, self.max_length))
        roomy = used.new_empty(num_rows if rows is None else len(rows), num_heads, capacity, width)
        roomy[:, :, :length] = used if rows is None else used[rows]
        return roomy


class RowCache(Cache):
    """A cache whose rows can be repeated (a prompt's for its group) and dropped (a finished completion's).

    Args:
        max_length: The longest a row can become, padding included.
    """

    def __init__(self, max_length: int) -> None:
        new_layer = partial(InPlaceLayer, max_length)  # the base class only ever calls it
        super().__init__(layer_class_to_replicate=new_layer)  # type: ignore[arg-type]
