"""From logits or hidden states to log-probabilities: the only place where predictions are shifted onto tokens."""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (the name every torch user reads)
from torch import Tensor
from torch.utils.checkpoint import checkpoint


class TokenScores(NamedTuple):
    """What a model says about the tokens it scored.

    All tensors have the same shape: ``[M]`` from :func:`score_hidden`, ``[B, T]`` once scattered back.
    """

    logps: Tensor
    """Log-probability of each token, in nats, fp32."""
    entropy: Tensor
    """Entropy of the distribution each token was drawn from, in nats, fp32."""
    is_top: Tensor
    """Whether the token is the most probable one, bool."""


def token_logps(logits: Tensor, input_ids: Tensor) -> Tensor:
    """Log-probability of every token given the tokens before it.

    The result is aligned to the token it scores: ``out[b, t] = log p(input_ids[b, t] | input_ids[b, :t])``. The first
    token has nothing before it, so column 0 is zero.

    Args:
        logits: ``[B, T, V]``, where ``logits[:, t]`` predicts the token at ``t + 1``. Any float type.
        input_ids: ``[B, T]`` token ids.

    Returns:
        ``[B, T]`` in nats, fp32 whatever the type of ``logits``.

    Raises:
        ValueError: If the two shapes do not agree on ``[B, T]``.

    Example:
        >>> logits = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]]])
        >>> token_logps(logits, torch.tensor([[0, 1, 0]]))
        tensor([[ 0.0000, -0.6931, -0.3133]])
    """
    if logits.shape[:-1] != input_ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} and input_ids {tuple(input_ids.shape)} must agree on [B, T]")
    predictions = logits[:, :-1].float()  # [B, T-1, V]
    chosen = predictions.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return F.pad(chosen - predictions.logsumexp(-1), (1, 0))


def select_predictors(hidden: Tensor, score_mask: Tensor) -> Tensor:
    """Pick, for every token to be scored, the hidden state that predicts it (the one before it).

    Args:
        hidden: ``[B, T, H]`` last hidden states.
        score_mask: ``[B, T]`` bool, True on the M tokens to score.

    Returns:
        ``[M, H]``, in the order of ``input_ids[score_mask]``.

    Raises:
        ValueError: If a first token is to be scored, since nothing predicts it.

    Example:
        >>> hidden = torch.arange(4.0).view(1, 4, 1)
        >>> select_predictors(hidden, torch.tensor([[False, False, True, True]])).squeeze(-1)
        tensor([1., 2.])
    """
    if score_mask[:, 0].any():
        raise ValueError("score_mask is True at column 0, but nothing predicts the first token of a row")
    return hidden[:, :-1][score_mask[:, 1:]]


def scatter_scores(values: Tensor, score_mask: Tensor) -> Tensor:
    """Put per-token values back at the tokens they belong to; the inverse of ``x[score_mask]``.

    Args:
        values: ``[M]``, one per True of the mask, in row-major order.
        score_mask: ``[B, T]`` bool with M True entries.

    Returns:
        ``[B, T]``, zero wherever the mask is False. Differentiable.

    Raises:
        ValueError: If the number of values is not the number of True entries.

    Example:
        >>> scatter_scores(torch.tensor([1.0, 2.0]), torch.tensor([[False, True], [False, True]]))
        tensor([[0., 1.],
                [0., 2.]])
    """
    num_scored = int(score_mask.sum())
    if values.shape != (num_scored,):
        raise ValueError(f"values {tuple(values.shape)} do not fit a score_mask with {num_scored} True entries")
    return values.new_zeros(score_mask.shape).masked_scatter(score_mask, values)


def score_hidden(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    entropy_grad: bool = False,
    max_logits: int = 2**24,
) -> TokenScores:
    """Score each target by its distribution, without ever holding all logits.

    Rows are cut into chunks of at most ``max_logits`` logits; with more than one chunk each is recomputed in the
    backward pass, so peak memory is one chunk however many tokens there are.

    Args:
        hidden: ``[M, H]`` hidden states that predict the targets (see :func:`select_predictors`).
        weight: ``[V, H]`` of the lm head.
        targets: ``[M]`` token ids.
        temperature: What the logits are divided by, so that scores are of the distribution sampled from.
        bias: ``[V]`` of the lm head, if it has one.
        entropy_grad: Whether gradients flow through the entropy (an entropy bonus needs them).
        max_logits: Most logits (chunk rows times V) computed at a time; 2**24 of them are 64 MiB in fp32.

    Returns:
        ``TokenScores`` of ``[M]``, fp32. The matrix product itself runs in the ambient precision (autocast's), exactly
        as the model's own head would, and only its result is made fp32.

    Raises:
        ValueError: If ``temperature`` is not positive: a greedy policy has no density to train on.

    Example:
        >>> scores = score_hidden(torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0]))
        >>> scores.logps, scores.entropy, scores.is_top
        (tensor([-0.3133, -0.6931]), tensor([0.5822, 0.6931]), tensor([True, True]))
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0 to score tokens, got {temperature}")
    chunk_rows = max(1, max_logits // weight.shape[0])
    if hidden.shape[0] <= chunk_rows:
        return _score_chunk(hidden, targets, weight, bias, temperature, entropy_grad)
    score = partial(_score_chunk, weight=weight, bias=bias, temperature=temperature, entropy_grad=entropy_grad)
    chunks: list[TokenScores] = [
        # Nothing in a chunk is random, so its RNG state need not be kept for the recomputation.
        checkpoint(score, rows, ids, use_reentrant=False, preserve_rng_state=False)
        for rows, ids in zip(torch.split(hidden, chunk_rows), torch.split(targets, chunk_rows), strict=True)
    ]
    return TokenScores(*(torch.cat(parts) for parts in zip(*chunks, strict=True)))


def score_logits(logits: Tensor, targets: Tensor, temperature: float, entropy_grad: bool) -> TokenScores:
    """Score each target by the logits that predict it.

    Args:
        logits: ``[M, V]``, any float type.
        targets: ``[M]`` token ids.
        temperature: What the logits are divided by.
        entropy_grad: Whether gradients flow through the entropy.

    Returns:
        ``TokenScores`` of ``[M]``.
    """
    log_probs = (logits.float() / temperature).log_softmax(-1)
    logps = log_probs.gather(-1, targets[:, None]).squeeze(-1)
    # What needs no gradient comes last: the recomputation in backward stops before it.
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        entropy = -(log_probs.exp() * log_probs).sum(-1)
    return TokenScores(logps, entropy, log_probs.detach().argmax(-1) == targets)


def _score_chunk(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, entropy_grad: bool
) -> TokenScores:
    return score_logits(F.linear(hidden, weight, bias), targets, temperature, entropy_grad)
