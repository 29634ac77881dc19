import math

import pytest
import torch

from lit_rlhf.rollout import Sampling
from lit_rlhf.rollout.inverse_cdf import CHUNK_ENTRIES, draw_tokens, invert_cdf


def grid(num):
    """Uniforms that stand for all of [0, 1): the middles of equal parts."""
    return (torch.arange(num, dtype=torch.float64) + 0.5) / num


def naive_probs(logits, sampling):
    """The distribution to draw from, [V], by sorting everything in fp64."""
    probs = (logits.double() / sampling.temperature).softmax(-1)
    ranked = probs.argsort(descending=True).tolist()
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    mass, kept, total = 0.0, [], sum(probs[token].item() for token in ranked)
    for token in ranked:
        if mass >= sampling.top_p * total:
            break
        kept.append(token)
        mass += probs[token].item()
    return torch.zeros_like(probs).index_fill_(0, torch.tensor(kept), 1.0) * probs / probs[kept].sum()


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(top_k=5),
    Sampling(top_p=0.8),
    Sampling(temperature=1.7, top_p=0.3),
    Sampling(temperature=0.8, top_k=7, top_p=0.9),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_frequencies_are_the_probabilities(sampling):
    logits = torch.randn(23, generator=torch.Generator().manual_seed(0)) * 2
    num = 20_000
    tokens, logps = draw_tokens(logits.expand(num, -1), grid(num), sampling)
    expected = naive_probs(logits, sampling)
    # Each token owns one interval of the uniforms, so a grid is off by less than one point at either end.
    assert (torch.bincount(tokens, minlength=23) / num - expected).abs().max() <= 2 / num
    torch.testing.assert_close(logps, expected[tokens].log().float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 10.0])
def test_top_p_keeps_the_smallest_nucleus_however_large(scale):
    """A flat row's nucleus is nearly the vocabulary (full sort), a peaked one's fits the first prefix."""
    logits = torch.randn(4, 3000, generator=torch.Generator().manual_seed(1)) * scale
    sampling = Sampling(top_p=0.9)
    uniforms = grid(64)
    for row in logits:
        tokens, logps = draw_tokens(row.expand(64, -1), uniforms, sampling)
        expected = naive_probs(row, sampling)
        assert expected[tokens].min() > 0
        torch.testing.assert_close(logps, expected[tokens].log().float(), rtol=0, atol=1e-5)
        bounds = expected.cumsum(0)
        assert torch.equal(tokens, torch.searchsorted(bounds, uniforms * bounds[-1], right=True))


def test_rows_of_different_nucleus_size_do_not_disturb_each_other():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(9, 3000, generator=generator) * torch.tensor([0.1, 1.0, 10.0]).repeat(3)[:, None]
    uniforms, sampling = grid(9), Sampling(top_p=0.95)
    together = draw_tokens(logits, uniforms, sampling)
    for row in range(9):
        alone = draw_tokens(logits[row : row + 1], uniforms[row : row + 1], sampling)
        assert alone.tokens[0] == together.tokens[row]
        assert alone.logps[0] == together.logps[row]


def test_chunks_are_joined_in_order():
    vocabulary = CHUNK_ENTRIES // 2
    logits = torch.full((5, vocabulary), -1e9)
    best = torch.tensor([3, 1, 4, 1, 5])
    logits[torch.arange(5), best] = 0
    for sampling in (Sampling(), Sampling(temperature=0)):
        assert draw_tokens(logits, grid(5), sampling).tokens.tolist() == best.tolist()


def test_tokens_without_probability_are_never_drawn():
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]])
    for uniform, place in [(0.0, 1), (0.5 - 1e-12, 1), (0.5, 3), (math.nextafter(1, 0), 3)]:
        assert invert_cdf(weights, torch.tensor([uniform], dtype=torch.float64)).tokens.tolist() == [place]


def test_nucleus_of_one_token_is_certain():
    draw = draw_tokens(torch.tensor([[0.0, 5.0, 1.0]]), grid(1), Sampling(top_p=1e-6))
    assert draw.tokens.tolist() == [1]
    assert draw.logps.tolist() == [0.0]
