"""T3, T4, T11: before the first update the policy is the reference and the sampler, at any temperature."""

import pytest
import torch

from lit_rlhf.rollout import Sampling


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_ratio_is_one_and_kl_is_zero(algorithm, train_run, temperature):
    settings = {"beta": 0.1, "windows_per_phase": 2, "sampling": Sampling(temperature=temperature, max_new_tokens=10)}
    run = train_run(algorithm, **settings)
    tokens = run.tokens[0]
    mask = tokens["completion_mask"]
    assert mask.any()
    for other in ("old_logps", "ref_logps", "sampler_logps"):
        assert torch.allclose(tokens["logps"][mask], tokens[other][mask], atol=1e-4), other
    assert abs(run.metrics[0]["kl"]) < 1e-6


def test_masks_cover_the_completion_and_its_end_of_sequence(algorithm, train_run):
    tokens = train_run(algorithm).tokens[0]
    for ids, mask, attended in zip(
        tokens["input_ids"], tokens["completion_mask"], tokens["attention_mask"], strict=True
    ):
        places = mask.nonzero().flatten()
        assert places.tolist() == list(range(int(places[0]), int(places[-1]) + 1))
        assert attended.sum() == places[-1] + 1
        assert places[0] > 0
        assert ids[places].numel() <= 10
