"""The completions of the last update, so that a finding can say which ones to look at."""

from typing import Any

import torch
from torch import Tensor

NUM_SAMPLES = 5


class WindowSamples:
    """Keep small tensors of one window: prompt ids, rewards, lengths. Nothing is copied from the device until asked."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._rows: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
        self._is_complete = False

    def add(self, outputs: Any, *, is_last: bool) -> None:
        """Take one micro-batch's outputs; ``is_last`` says that its window ends with it."""
        if self._is_complete:
            self.num_rows, self._rows = 0, []
        self._is_complete = is_last
        tokens = outputs.get("tokens") if isinstance(outputs, dict) else None
        if not tokens:
            return
        self.num_rows += len(next(iter(tokens.values())))
        if "prompt_ids" in tokens:
            mask = tokens.get("completion_mask")
            lengths = mask.sum(-1) if mask is not None else None
            self._rows.append((tokens["prompt_ids"], tokens.get("rewards"), lengths))

    def worst(self, *, by_length: bool) -> tuple[int, ...]:
        """Return prompt ids of this rank's completions with the lowest reward, or the longest ones, each id once."""
        place = 2 if by_length else 1
        rows = [row for row in self._rows if row[place] is not None]
        if not rows:
            return ()
        ids = torch.cat([row[0].flatten() for row in rows]).tolist()
        values = torch.cat([row[place].flatten() for row in rows]).double()  # type: ignore[union-attr]
        order = torch.argsort(-values if by_length else values, stable=True).tolist()
        return tuple(dict.fromkeys(int(ids[row]) for row in order))[:NUM_SAMPLES]
