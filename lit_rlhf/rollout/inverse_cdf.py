"""Draw one token per row from logits and one uniform number per row."""

from typing import NamedTuple

import torch
from torch import Tensor

from lit_rlhf.rollout.sampling import Sampling

# Sorting a vocabulary of 151,936 costs 40 times a topk. A nucleus seldom holds more tokens than this.
NUCLEUS_PREFIX = 1024


class Draw(NamedTuple):
    """One token per row, and its log-probability under the distribution it was drawn from."""

    tokens: Tensor  # [N] int64
    logps: Tensor  # [N] fp32


def draw_tokens(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Draw:
    """Draw the next token of every row.

    A token depends on its own row of both arguments only.

    Args:
        logits: ``[N, V]``, any float type.
        uniforms: ``[N]`` float64 in [0, 1); not looked at when the temperature is 0.
        sampling: Temperature, top-k and top-p, applied in that order.

    Returns:
        The tokens and their log-probabilities; at temperature 0 those of the distribution at temperature 1.
    """
    if sampling.temperature == 0:
        tokens = logits.argmax(dim=-1)
        return Draw(tokens, _logp_of(logits.float(), tokens))
    probs = torch.softmax(logits.float() / sampling.temperature, dim=-1)  # [N, V]
    top_k = sampling.top_k if sampling.top_k < probs.shape[-1] else 0
    if top_k == 0 and sampling.top_p == 1:
        return invert_cdf(probs, uniforms)
    if top_k:
        candidates = probs.topk(top_k)
        candidates.values.div_(candidates.values.sum(dim=-1, keepdim=True))
        return _draw_nucleus(candidates.values, candidates.indices, uniforms, sampling.top_p)
    return _draw_top_p(probs, uniforms, sampling.top_p)


def invert_cdf(weights: Tensor, uniforms: Tensor) -> Draw:
    """Find the place where a row's cumulative weight passes ``uniform × the row's total``.

    A place of zero weight is never returned: not at uniform 0 (the cumulative weight must *exceed* the target), nor
    when the target is rounded up to the total (it is kept below it, which finds the last place of non-zero weight).

    Args:
        weights: ``[N, K]`` fp32, at least one positive in each row; they need not sum to 1.
        uniforms: ``[N]`` float64 in [0, 1).

    Returns:
        The places, ``[N]``, and the log of their share of the row's weight.

    >>> weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]]).expand(3, 5)
    >>> invert_cdf(weights, torch.tensor([0.0, 0.24, 1 - 1e-16], dtype=torch.float64))
    Draw(tokens=tensor([1, 1, 3]), logps=tensor([-1.3863, -1.3863, -0.2877]))
    """
    cumulative = weights.cumsum(dim=-1)  # [N, K]
    total = cumulative[:, -1]
    target = (uniforms * total.double()).to(total.dtype)
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(cumulative, target[:, None], right=True)
    return Draw(places[:, 0], (weights.gather(-1, places)[:, 0] / total).log())


def _draw_top_p(probs: Tensor, uniforms: Tensor, top_p: float) -> Draw:
    """Draw from each row's nucleus in ``probs`` ``[N, V]``, sorting fully only rows whose nucleus is large."""
    width = min(NUCLEUS_PREFIX, probs.shape[-1])
    top, ids = probs.topk(width)
    draw = _draw_nucleus(top, ids, uniforms, top_p)
    if width == probs.shape[-1]:
        return draw
    wide_rows = (top.cumsum(dim=-1)[:, -1] < top_p).nonzero()[:, 0]
    if len(wide_rows):
        everything, ids = probs[wide_rows].sort(dim=-1, descending=True)
        wide = _draw_nucleus(everything, ids, uniforms[wide_rows], top_p)
        draw.tokens[wide_rows], draw.logps[wide_rows] = wide
    return draw


def _draw_nucleus(top: Tensor, ids: Tensor, uniforms: Tensor, top_p: float) -> Draw:
    """Draw from the first entries of ``top`` that together hold ``top_p``.

    Args:
        top: ``[N, K]`` probabilities, falling along each row, relative to 1.
        ids: ``[N, K]`` their tokens.
        uniforms: ``[N]``.
        top_p: An entry is kept when those before it hold less than this.
    """
    before = torch.nn.functional.pad(top.cumsum(dim=-1)[:, :-1], (1, 0))  # [N, K]
    kept = top * (before < top_p)
    # In the order of the vocabulary, as without top-k and top-p: two tokens of nearly the same probability may swap
    # their ranks by rounding, and then nothing else must move.
    ids, order = ids.sort(dim=-1)
    places, logps = invert_cdf(kept.gather(-1, order), uniforms)
    return Draw(ids.gather(-1, places[:, None])[:, 0], logps)


def _logp_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of one token ``[N]`` in each row of ``logits`` ``[N, V]``."""
    return logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)
