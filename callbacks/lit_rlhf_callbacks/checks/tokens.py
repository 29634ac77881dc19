"""A window's tokens as one batch, and which of its rows one further forward is spent on."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (the name every torch user reads)
from torch import Tensor

from lit_rlhf_callbacks.scoring import scored_mask

Tokens = dict[str, Tensor]

MAX_TOKENS = 8192  # padded, of the one forward that a look costs


def join_tokens(parts: Sequence[Tokens]) -> Tokens:
    """Join the ``tokens`` of a window's micro-batches, right-padded with zeros (labels: -100) to the widest.

    Args:
        parts: What each ``training_step`` showed; only names that all of them have are kept.

    Returns:
        Detached tensors, ``[B, T]`` and ``[B]``; empty when no micro-batch had rows.

    >>> a, b = {"input_ids": torch.tensor([[1, 2]])}, {"input_ids": torch.tensor([[3]])}
    >>> join_tokens([a, {}, b])["input_ids"].tolist()
    [[1, 2], [3, 0]]
    """
    parts = [part for part in parts if part]
    if not parts:
        return {}
    names = [name for name in parts[0] if all(name in part for part in parts)]
    joined = {name: [part[name].detach() for part in parts] for name in names}
    return {name: torch.cat(_widened(values, -100 if name == "labels" else 0)) for name, values in joined.items()}


def affordable_rows(tokens: Tokens, max_tokens: int = MAX_TOKENS) -> Tokens:
    """Keep as many rows as one forward may hold, in neighbouring pairs spread evenly over the window.

    Args:
        tokens: ``[B, T]`` and ``[B]`` tensors; what has another number of rows is left out.
        max_tokens: Padded tokens.
    """
    num_rows, width = tokens["input_ids"].shape
    num_pairs, wanted = (num_rows + 1) // 2, max(max_tokens // width // 2, 1)
    pairs = torch.arange(min(num_pairs, wanted)) * num_pairs // min(num_pairs, wanted)
    rows = torch.stack([2 * pairs, 2 * pairs + 1], dim=1).flatten()
    rows = rows[rows < num_rows].to(tokens["input_ids"].device)
    return {name: value[rows] for name, value in tokens.items() if value.dim() > 0 and len(value) == num_rows}


def counted_mask(tokens: Tokens) -> Tensor | None:
    """Return which tokens have a log-prob that counts, ``[B, T]`` bool; None where the batch does not say."""
    mask = scored_mask(tokens)
    if mask is None:
        return None
    mask = mask.clone()
    mask[:, 0] = False  # nothing stands before it
    return mask


def real_mask(tokens: Tokens) -> Tensor:
    """Return which tokens are no pads, ``[B, T]`` bool; all, where the batch has no ``attention_mask``."""
    if "attention_mask" in tokens:
        return tokens["attention_mask"].bool()
    return torch.ones_like(tokens["input_ids"], dtype=torch.bool)


def mean_difference(left: Tensor, right: Tensor, mask: Tensor) -> float:
    """Return the mean absolute difference over the masked elements."""
    return float((left.float() - right.float())[mask].abs().mean())


def _widened(values: Sequence[Tensor], fill: int) -> list[Tensor]:
    if values[0].dim() < 2:
        return list(values)
    width = max(value.shape[1] for value in values)
    return [F.pad(value, (0, width - value.shape[1]), value=fill) for value in values]
