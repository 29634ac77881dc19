"""ORPO and SimPO on completions of thousands of tokens: finite, and the odds term does not drown the likelihood."""

import pytest
import torch
from torch.nn.functional import logsigmoid
from transformers import LlamaConfig, LlamaForCausalLM

from lit_rlhf.algorithms import ORPO, SimPO
from lit_rlhf.backbone import Backbone
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.functional.preference_losses import log_odds_ratio

NUM_TOKENS = 2200
VOCABULARY = 261


@pytest.fixture(scope="module")
def sharp_model(tmp_path_factory):
    """A small random model with clear favourites among the next tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(10)
    folder = tmp_path_factory.mktemp("sharp")
    model.save_pretrained(folder)
    Backbone("builtin:tiny").tokenizer.save_pretrained(folder)
    return str(folder)


@torch.no_grad()
def likely_and_random(model):
    """Two completions of the same prompt: one that the model finds likely, one of random tokens."""
    torch.manual_seed(1)
    backbone = Backbone(model)
    backbone.load()
    prompt = torch.randint(5, VOCABULARY, (1, 10))
    noise = torch.randint(5, VOCABULARY, (1, NUM_TOKENS))
    logits = backbone.hf_model(torch.cat([prompt, noise], 1)).logits
    logits[..., :5] = -torch.inf
    # Every second token is the favourite after the random one before it: likely, without generating 2,200 tokens.
    likely = noise.clone()
    likely[:, 1::2] = logits[:, 10:-1].argmax(-1)[:, ::2]
    return [
        Sample([*prompt[0].tolist(), *ids[0].tolist()], [False] * 10 + [True] * NUM_TOKENS, 10)
        for ids in (likely, noise)
    ]


def loss_and_parts(kind, model, samples):
    module = kind(model=model)
    module.backbone.load()
    example = Example(0, samples)
    batch = Batch(parts=[[example]], num_examples=1, num_tokens=example.num_tokens, closes_window=True)
    share, shown = module.window_share(collate([example], module.backbone.pad_id), batch)
    share.backward()
    grads = [parameter.grad for parameter in module.parameters() if parameter.requires_grad]
    return module, share.detach(), shown, grads


@pytest.mark.parametrize("kind", [ORPO, SimPO])
@pytest.mark.parametrize("preferred", ["the likely one", "the random one"])
def test_loss_and_gradients_are_finite(kind, preferred, sharp_model):
    samples = likely_and_random(sharp_model)
    _, share, _, grads = loss_and_parts(kind, sharp_model, samples if preferred == "the likely one" else samples[::-1])

    assert share.isfinite()
    assert share < 20
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    assert sum(grad.square().sum() for grad in grads) > 0


@pytest.mark.parametrize("preferred", ["the likely one", "the random one"])
def test_the_odds_term_is_of_the_order_of_the_likelihood_and_of_sums_it_is_not(preferred, sharp_model):
    samples = likely_and_random(sharp_model)
    if preferred == "the random one":
        samples = samples[::-1]
    module, share, shown, _ = loss_and_parts(ORPO, sharp_model, samples)
    sums = shown["logps"].sum(-1)
    nll = -sums[0] / NUM_TOKENS
    odds = float(shown["losses"]) / module.beta  # without the weight λ

    torch.testing.assert_close(share, nll + module.beta * odds)
    assert 0.01 < odds / nll < 10

    naive = float(-logsigmoid(log_odds_ratio(sums[:1], sums[1:])))
    if preferred == "the likely one":
        assert naive == 0  # and so is its gradient: the pair teaches nothing
    else:
        assert naive > 100 * nll


@pytest.mark.parametrize("certainty", [0.0, -1e-9, -1e-7, -1e-4, -0.002])
def test_a_completion_known_by_heart_gives_a_finite_loss(certainty):
    """log(1 - p) of a mean log-prob near 0: -inf where p rounds to 1, then inf - inf."""
    chosen = torch.tensor([certainty, certainty], requires_grad=True)
    rejected = torch.tensor([certainty, -3.0], requires_grad=True)

    (-logsigmoid(log_odds_ratio(chosen, rejected))).sum().backward()

    assert log_odds_ratio(chosen, rejected).isfinite().all()
    assert chosen.grad.isfinite().all()
    assert rejected.grad.isfinite().all()
