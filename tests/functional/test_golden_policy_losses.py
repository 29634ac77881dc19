"""Our losses against the numbers TRL's own trainer gave (tests/golden/make_policy_losses.py says how)."""

import json
from pathlib import Path

import pytest
import torch

from lit_rlhf.functional import (
    aggregate,
    cispo_loss,
    gspo_loss,
    kl_estimate,
    ppo_clip_loss,
    sapo_loss,
)

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "policy_losses.json").read_text())
CASES = RECORDED["cases"]
AGGREGATIONS = {
    "grpo": "seq_mean_token_mean",
    "sapo": "seq_mean_token_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "dr_grpo": "constant",
}


@pytest.fixture
def batch():
    tensors = {name: torch.tensor(values) for name, values in RECORDED["inputs"].items()}
    tensors["mask"] = tensors["mask"].bool()
    tensors["advantages"] = tensors["advantages"][:, None]
    tensors["logps"].requires_grad_()
    return tensors


def policy_loss(batch, settings):
    """The function of ours that one TRL setting stands for."""
    inputs = batch["logps"], batch["old_logps"], batch["advantages"]
    clip = {"clip_low": settings["epsilon"], "clip_high": settings["epsilon_high"]}
    if settings["loss_type"] == "cispo":  # there TRL's epsilon_high is the bound on the weight, ours an offset from 1
        return cispo_loss(*inputs, clip_low=None, clip_high=settings["epsilon_high"] - 1)
    if settings["loss_type"] == "sapo":
        tau = {"tau_pos": settings["sapo_temperature_pos"], "tau_neg": settings["sapo_temperature_neg"]}
        return sapo_loss(*inputs, **tau)
    if settings["importance_sampling_level"] == "sequence":
        return gspo_loss(*inputs, batch["mask"], **clip)
    return ppo_clip_loss(*inputs, **clip, clip_dual=settings.get("delta"))


def kl_penalty(batch, settings):
    if not settings.get("use_bias_correction_kl", False):
        return settings["beta"] * kl_estimate(batch["logps"], batch["ref_logps"], "k3")
    # TRL multiplies k3 by the ratio, gradient included. Value and gradient are those of the straight-through k3
    # weighted by the ratio as a constant: d(rho k3) = rho (k3 + 1 - exp(-d)) dlogp = rho d dlogp.
    weight = (batch["logps"] - batch["old_logps"]).exp().detach()
    return settings["beta"] * weight * kl_estimate(batch["logps"], batch["ref_logps"], "k3", straight_through=True)


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_equal_trl(batch, name):
    settings = CASES[name]["settings"]
    values = policy_loss(batch, settings).values + kl_penalty(batch, settings)
    window = {"num_tokens": int(batch["mask"].sum()), "num_sequences": len(batch["mask"])}
    micro_batches = torch.arange(len(values)).chunk(settings.get("num_micro_batches", 1))
    loss = sum(
        aggregate(
            values[rows],
            batch["mask"][rows],
            AGGREGATIONS[settings["loss_type"]],
            **window,
            max_tokens=RECORDED["max_completion_length"],
        )
        for rows in micro_batches
    )
    loss.backward()
    torch.testing.assert_close(loss.item(), CASES[name]["loss"], rtol=0, atol=1e-5)
    torch.testing.assert_close(batch["logps"].grad, torch.tensor(CASES[name]["gradient"]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if "clip_ratio/low_mean" in case.get("metrics", {})]
)
def test_clip_masks_equal_trl_metrics(batch, name):
    settings, metrics = CASES[name]["settings"], CASES[name]["metrics"]
    loss = policy_loss(batch, settings)
    # A sequence has one ratio: TRL counts sequences then, we its tokens, which all say the same.
    counted = torch.zeros_like(batch["mask"])
    counted[:, 0] = True
    counted = counted if settings["importance_sampling_level"] == "sequence" else batch["mask"]
    assert loss.low_clipped[counted].float().mean().item() == pytest.approx(metrics["clip_ratio/low_mean"])
    assert loss.high_clipped[counted].float().mean().item() == pytest.approx(metrics["clip_ratio/high_mean"])
    assert metrics["clip_ratio/low_mean"] > 0  # otherwise this proves nothing
    assert metrics["clip_ratio/high_mean"] > 0


def test_cispo_bounded_share_equals_trl_metric(batch):
    loss = policy_loss(batch, CASES["cispo"]["settings"])
    share = loss.high_clipped[batch["mask"]].float().mean().item()
    assert share == pytest.approx(CASES["cispo"]["metrics"]["cispo_clip_ratio"])
    assert share > 0


def test_kl_equals_trl_metric(batch):
    kl = kl_estimate(batch["logps"], batch["ref_logps"], "k3")[batch["mask"]].mean().item()
    assert kl == pytest.approx(CASES["grpo_kl"]["metrics"]["kl"], abs=1e-5)
