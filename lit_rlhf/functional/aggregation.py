"""From per-token values to one number, with the denominators of the whole window."""

from typing import Literal

from torch import Tensor

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]


def aggregate(
    values: Tensor,
    mask: Tensor,
    how: Aggregation,
    *,
    num_tokens: float | Tensor,
    num_sequences: float | Tensor,
    max_tokens: int,
) -> Tensor:
    """Sum per-token values over the rows given, divided by the denominator of the window they belong to.

    Adding the results of a window's micro-batches, over all ranks, gives the window's loss, however it was cut.

    =====================  =====================================  ================================================
    how                    denominator of a token in row i        used by
    =====================  =====================================  ================================================
    token_mean             num_tokens                             DAPO (arXiv 2503.14476), CISPO: equal weights
    seq_mean_token_mean    num_sequences * tokens in row i        GRPO (2402.03300), GSPO: short rows weigh more
    seq_mean_token_sum     num_sequences                          REINFORCE, RLOO: the gradient of log p(sequence)
    constant               num_sequences * max_tokens             Dr. GRPO (2503.20783): no length bias
    =====================  =====================================  ================================================

    Args:
        values: ``[B, T]``, for instance a per-token loss.
        mask: ``[B, T]`` bool, True where a token counts. What ``values`` holds elsewhere (nan too) does not matter.
        how: The denominator, see above.
        num_tokens: Tokens that count, in the whole window over all ranks.
        num_sequences: Rows that count, in the whole window over all ranks.
        max_tokens: The longest a completion may be, the constant of ``constant``.

    Returns:
        A scalar, fp32; 0 with a graph if no token counts.

    Raises:
        ValueError: If ``how`` is unknown.

    Example:
        >>> import torch
        >>> values, mask = torch.tensor([[1.0, 1.0], [4.0, 9.0]]), torch.tensor([[True, True], [True, False]])
        >>> window = {"num_tokens": 3, "num_sequences": 2, "max_tokens": 2}
        >>> [aggregate(values, mask, how, **window).item() for how in ("token_mean", "seq_mean_token_mean", "constant")]
        [2.0, 2.5, 1.5]
    """
    row_sums = values.float().masked_fill(~mask, 0.0).sum(-1)  # [B]
    if how == "token_mean":
        return row_sums.sum() / _at_least_one(num_tokens)
    if how == "seq_mean_token_mean":
        return (row_sums / mask.sum(-1).clamp(min=1)).sum() / _at_least_one(num_sequences)
    if how == "seq_mean_token_sum":
        return row_sums.sum() / _at_least_one(num_sequences)
    if how == "constant":
        return row_sums.sum() / (_at_least_one(num_sequences) * max_tokens)
    raise ValueError(
        f"unknown aggregation {how!r}: use 'token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum' or 'constant'"
    )


def _at_least_one(count: float | Tensor) -> float | Tensor:
    """An empty window (all completions masked out) has loss 0, not 0/0."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)
