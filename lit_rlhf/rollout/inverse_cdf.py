"""Draw one token per row from logits and one uniform number per row."""

from typing import NamedTuple

import torch
from torch import Tensor

from lit_rlhf.rollout.sampling import Sampling

# Logits worked on at a time. In such pieces 64 rows of 151,936 take a quarter of the time on a CPU: they stay in cache.
CHUNK_ENTRIES = 2**21

# Few nuclei hold more tokens than the first; rows whose does are tried again with more. Of 151,936 tokens a topk of
# 64 costs 13 ms, of 1,024 43 ms, of 16,384 150 ms and a sort 800 ms (64 rows, one thread).
NUCLEUS_WIDTH, NUCLEUS_GROWTH = 64, 16


class Draw(NamedTuple):
    """One token per row, and its log-probability under the distribution it was drawn from."""

    tokens: Tensor  # [N] int64
    logps: Tensor  # [N] fp32


def draw_tokens(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Draw:
    """Draw the next token of every row; it depends on its own row of both arguments only.

    Args:
        logits: ``[N, V]``, any float type.
        uniforms: ``[N]`` float64 in [0, 1); not looked at when the temperature is 0.
        sampling: Temperature, top-k and top-p, applied in that order.

    Returns:
        The tokens and their log-probabilities; at temperature 0 those of the distribution at temperature 1.

    >>> draw_tokens(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([0.5], dtype=torch.float64), Sampling(top_k=2))
    Draw(tokens=tensor([2]), logps=tensor([-0.3133]))
    """
    num_rows = max(1, CHUNK_ENTRIES // logits.shape[-1])
    chunks = zip(logits.split(num_rows), uniforms.split(num_rows), strict=True)
    draws = [_draw(chunk.float(), noise, sampling) for chunk, noise in chunks]
    return draws[0] if len(draws) == 1 else Draw(*map(torch.cat, zip(*draws, strict=True)))


def invert_cdf(weights: Tensor, uniforms: Tensor) -> Draw:
    """Find the place where a row's cumulative weight passes ``uniform × the row's total``.

    A place of zero weight is never returned: not at uniform 0, because the cumulative weight must *exceed* the target,
    nor at the largest uniform, because its product with the total is below the total in fp64.

    Args:
        weights: ``[N, K]`` fp32, at least one positive in each row; they need not sum to 1.
        uniforms: ``[N]`` float64 in [0, 1).

    Returns:
        The places, ``[N]``, and the log of their share of the row's weight (NaN for a row that holds a NaN).

    >>> weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]]).expand(3, 5)
    >>> invert_cdf(weights, torch.tensor([0.0, 0.24, 1 - 1e-16], dtype=torch.float64))
    Draw(tokens=tensor([1, 1, 3]), logps=tensor([-1.3863, -1.3863, -0.2877]))
    """
    # fp64, because a GPU sums in a tree: in fp32 the running sum can rise by rounding at a place of zero weight.
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)  # [N, K]
    total = cumulative[:, -1]
    places = torch.searchsorted(cumulative, (uniforms * total)[:, None], right=True)
    places = places.clamp(max=weights.shape[-1] - 1)  # past the end only where the total is NaN
    return Draw(places[:, 0], (weights.gather(-1, places)[:, 0] / total).log().float())


def _draw(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Draw:
    """Do `draw_tokens` on fp32 logits of few rows."""
    if sampling.temperature == 0:
        tokens = logits.argmax(dim=-1)
        return Draw(tokens, logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1))
    if 0 < sampling.top_k < logits.shape[-1]:
        top, ids = logits.topk(sampling.top_k)
        top = torch.softmax(top / sampling.temperature, dim=-1)
        return _draw_ranked(top if sampling.top_p == 1 else _nucleus(top, sampling.top_p), ids, uniforms)
    probs = torch.softmax(logits / sampling.temperature, dim=-1)
    return invert_cdf(probs, uniforms) if sampling.top_p == 1 else _draw_top_p(probs, uniforms, sampling.top_p)


def _draw_top_p(probs: Tensor, uniforms: Tensor, top_p: float, width: int = NUCLEUS_WIDTH) -> Draw:
    """Draw from each row's nucleus in ``probs`` ``[N, V]``, looking for it among the ``width`` most probable tokens."""
    if width * NUCLEUS_GROWTH > probs.shape[-1]:
        top, ids = probs.sort(dim=-1, descending=True)
        return invert_cdf(torch.empty_like(probs).scatter_(-1, ids, _nucleus(top, top_p)), uniforms)
    top, ids = probs.topk(width)
    draw = _draw_ranked(_nucleus(top, top_p), ids, uniforms)
    larger = (top.sum(dim=-1, dtype=torch.float64) < top_p).nonzero()[:, 0]
    if len(larger):
        again = _draw_top_p(probs[larger], uniforms[larger], top_p, width * NUCLEUS_GROWTH)
        draw.tokens[larger], draw.logps[larger] = again
    return draw


def _nucleus(top: Tensor, top_p: float) -> Tensor:
    """Keep the fewest first entries that together hold ``top_p``, of probabilities ``[N, K]`` that fall along a row."""
    before = top.cumsum(dim=-1, dtype=torch.float64) - top
    return top * (before < top_p)


def _draw_ranked(top: Tensor, ids: Tensor, uniforms: Tensor) -> Draw:
    """Draw one of the tokens ``ids`` ``[N, K]`` with the weights ``top`` ``[N, K]``."""
    # In the order of the vocabulary, as without top-k and top-p: two tokens of nearly the same probability may swap
    # their ranks by rounding, and then nothing else must move.
    ids, order = ids.sort(dim=-1)
    places, logps = invert_cdf(top.gather(-1, order), uniforms)
    return Draw(ids.gather(-1, places[:, None])[:, 0], logps)
