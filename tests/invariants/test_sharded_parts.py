"""T6 with sharded weights: ranks whose rows make more or fewer forwards gather the same layers at the same moment."""

import json

import pytest
import torch
from sharded_runs import train_on_pairs, train_sharded
from short_runs import optimizer

from lit_rlhf.backbone import Backbone

pytestmark = pytest.mark.ddp


@pytest.fixture(scope="module")
def settings(model, data):
    """Three prompts for two ranks and a row per forward: one rank makes eight and the other four."""
    data = {**data, "prompts_per_phase": 3}
    return {
        "model": model,
        "data": data,
        "updates": 2,
        "beta": 0.1,
        "max_tokens_per_forward": 1,
        "optimizer": optimizer("SGD", 0.05),
    }


@pytest.fixture(scope="module")
def sharded(ranks, settings):
    """Tokens and gradients that each of two ranks has seen."""
    return ranks(train_sharded, "GRPO", **settings)


def test_a_sharded_update_is_that_of_one_rank(run, sharded, settings):
    (one,) = run("GRPO", **{**settings, "updates": 1}).gradients
    largest = max(float(gradient.abs().max()) for gradient in one.values())
    for _, gradients in sharded:
        for name, gradient in one.items():
            assert (gradients[0][name] - gradient).abs().max() < 1e-5 * largest


def test_a_sharded_reference_stays_the_start_policy(sharded, settings):
    start = Backbone(settings["model"])
    start.load()
    for tokens, _ in sharded:
        batch = tokens[1]  # of the second update, when the policy is another
        mask = batch["completion_mask"]
        with torch.no_grad():
            expected = start.score_tokens(batch["input_ids"], batch["attention_mask"], mask).logps
        assert (batch["logps"] - expected)[mask].abs().max() > 0.01
        assert torch.allclose(batch["ref_logps"], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["DPO", "KTO"])
def test_a_sharded_update_on_pairs_is_that_of_one_rank(ranks, model, tmp_path, name):
    pairs = [{"prompt": "say " + "ab" * n, "chosen": "yes" * (1 + n), "rejected": "no"} for n in range(6)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    one = train_on_pairs(name, model, str(path), sharded=False)
    largest = max(float(gradient.abs().max()) for gradient in one[0].values())
    for two in ranks(train_on_pairs, name, model, str(path), sharded=True):
        for mine, its in zip(one, two, strict=True):
            assert all((its[key] - mine[key]).abs().max() < 1e-5 * largest for key in mine)
