"""Our preference losses against the numbers TRL's own trainers gave (tests/golden/make_preference_losses.py says how).

The same loss in both, TRL 1.16 on the left. "sums" and "means" are what is fed in, over a completion's tokens.

=====================================  ====================================================  ====================
TRL setting                            ours                                                  TRL departs
=====================================  ====================================================  ====================
DPO ``loss_type: sigmoid``             ``dpo_loss`` on sums
  ``label_smoothing``                  ``dpo_loss(label_smoothing)``                         ignores it
  ``f_divergence_type: forward_kl``    ``dpo_loss(f_divergence="forward_kl")``               inf - inf from 89 nats
  ``js_divergence``                    ``"js"``
  ``alpha_divergence``                 ``"alpha"``, alpha = 1 - ``f_alpha_divergence_coef``
  ``rewards/*`` of an f-divergence     β f'(π/π_ref)                                         logs β log(π/π_ref)
  ``[sigmoid, sft]``, weights [1, w]   ``dpo_loss`` + w × NLL of the chosen                  NLL: per token of the
                                                                                             micro-batch
DPO ``robust``                         ``robust_dpo_loss`` on sums
DPO ``sigmoid_norm``                   ``dpo_loss`` on means
DPO ``ipo``                            ``ipo_loss`` on means                                 (the paper: sums)
DPO ``hinge``                          ``hinge_loss`` on sums
DPO ``apo_zero``, ``apo_down``         ``apo_zero_loss``, ``apo_down_loss`` on sums          (the paper: 1 less)
KTO ``kto``                            ``kto_loss`` on sums                                  KL of the micro-batch
CPO ``sigmoid``, ``cpo_alpha``         ``cpo_loss`` on sums + cpo_alpha × NLL of the chosen  NLL: as above
CPO ``simpo``, ``cpo_alpha: 0``        ``simpo_loss`` on means, gamma = simpo_gamma ÷ beta
ORPO                                   ``orpo_odds_loss`` on means + NLL of the chosen       NLL: prompt as well
=====================================  ====================================================  ====================

TRL averages over the pairs of a micro-batch; ours leave ``[B]``, to be averaged over the window.
"""

import json
from pathlib import Path

import pytest
import torch

from lit_rlhf.functional import (
    apo_down_loss,
    apo_zero_loss,
    cpo_loss,
    dpo_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    log_odds_ratio,
    orpo_odds_loss,
    robust_dpo_loss,
    simpo_loss,
)

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "preference_losses.json").read_text())
CASES = RECORDED["cases"]
F_DIVERGENCES = {
    "reverse_kl": "reverse_kl",
    "forward_kl": "forward_kl",
    "js_divergence": "js",
    "alpha_divergence": "alpha",
}
PAIRED = [name for name, case in CASES.items() if case["trainer"] != "kto"]
KTO = [name for name, case in CASES.items() if case["trainer"] == "kto"]


def inputs_of(name):
    """Tensors of one case; TRL puts all chosen rows before all rejected ones."""
    recorded = dict(RECORDED["inputs"][CASES[name]["trainer"]])
    mismatched = recorded.pop("mismatched", None)
    tensors = {key: torch.tensor(values) for key, values in recorded.items()}
    tensors["logps"].requires_grad_()
    if mismatched:
        tensors["mismatched"] = {key: torch.tensor(values) for key, values in mismatched.items()}
    return tensors


def sums(logps, mask):
    return (logps * mask).sum(-1)


def means(logps, mask):
    return sums(logps, mask) / mask.sum(-1)


def referenced_loss(name, inputs):
    """What one setting of TRL's DPOTrainer stands for."""
    settings = CASES[name]["settings"]
    loss_type = settings["loss_type"][0]
    over = means if loss_type in ("ipo", "sigmoid_norm") else sums
    logps = *over(inputs["logps"], inputs["mask"]).chunk(2), *over(inputs["ref_logps"], inputs["mask"]).chunk(2)
    if loss_type == "robust":
        return robust_dpo_loss(*logps, beta=settings["beta"], label_smoothing=settings["label_smoothing"])
    if loss_type in ("sigmoid", "sigmoid_norm"):  # TRL has no label smoothing here
        divergence = F_DIVERGENCES[settings["f_divergence_type"]]
        alpha = 1 - settings.get("f_alpha_divergence_coef", 0.5)
        return dpo_loss(*logps, beta=settings["beta"], f_divergence=divergence, alpha=alpha)
    losses = {"ipo": ipo_loss, "hinge": hinge_loss, "apo_zero": apo_zero_loss, "apo_down": apo_down_loss}
    return losses[loss_type](*logps, beta=settings["beta"])


def unreferenced_loss(name, inputs):
    """What one setting of TRL's CPOTrainer or ORPOTrainer stands for."""
    settings = CASES[name]["settings"]
    beta = settings["beta"]
    if CASES[name]["trainer"] == "orpo":
        return orpo_odds_loss(*means(inputs["logps"], inputs["mask"]).chunk(2), beta=beta)
    if settings["loss_type"] == "simpo":
        both_means = means(inputs["logps"], inputs["mask"]).chunk(2)
        return simpo_loss(*both_means, beta=beta, gamma=settings["simpo_gamma"] / beta)
    both_sums = sums(inputs["logps"], inputs["mask"]).chunk(2)
    return cpo_loss(*both_sums, beta=beta, label_smoothing=settings["label_smoothing"])


def nll_of_chosen(name, inputs):
    """The likelihood TRL adds, weight included: a mean over tokens, ORPO's over the prompt as well."""
    settings = CASES[name]["settings"]
    weights = {"dpo": settings.get("loss_weights", [1, 0])[-1], "cpo": settings.get("cpo_alpha"), "orpo": 1.0}
    mask = inputs["attention_mask" if CASES[name]["trainer"] == "orpo" else "mask"].clone()
    mask[:, 0] = False  # nothing predicts it
    chosen, _ = inputs["logps"].chunk(2)
    return weights[CASES[name]["trainer"]] * -chosen[mask.chunk(2)[0]].mean()


def paired_loss(name, inputs):
    return (referenced_loss if CASES[name]["trainer"] == "dpo" else unreferenced_loss)(name, inputs)


def unpaired_kl(inputs):
    mismatched = inputs["mismatched"]
    return (sums(mismatched["logps"], mismatched["mask"]) - sums(mismatched["ref_logps"], mismatched["mask"])).mean()


def assert_as_recorded(name, loss, inputs):
    loss.backward()
    torch.testing.assert_close(loss.item(), CASES[name]["loss"], rtol=0, atol=1e-5)
    torch.testing.assert_close(inputs["logps"].grad, torch.tensor(CASES[name]["gradient"]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PAIRED)
def test_loss_and_gradient_equal_trl(name):
    inputs = inputs_of(name)
    loss = paired_loss(name, inputs).losses.mean() + nll_of_chosen(name, inputs)
    assert_as_recorded(name, loss, inputs)


@pytest.mark.parametrize("name", KTO)
def test_kto_and_its_gradient_equal_trl(name):
    inputs, settings = inputs_of(name), CASES[name]["settings"]
    losses = kto_loss(
        sums(inputs["logps"], inputs["mask"]),
        sums(inputs["ref_logps"], inputs["mask"]),
        inputs["label"],
        unpaired_kl(inputs),
        beta=settings["beta"],
        desirable_weight=settings["desirable_weight"],
        undesirable_weight=settings["undesirable_weight"],
    )
    assert unpaired_kl(inputs).item() == pytest.approx(CASES[name]["metrics"]["kl"], abs=1e-5)
    assert unpaired_kl(inputs) > 0  # otherwise the reference point is not tested
    assert_as_recorded(name, losses.mean(), inputs)


@pytest.mark.parametrize(
    "name", [name for name in PAIRED if CASES[name]["settings"].get("f_divergence_type", "reverse_kl") == "reverse_kl"]
)
def test_rewards_equal_trl_metrics(name):
    inputs = inputs_of(name)
    loss = paired_loss(name, inputs)
    lengths = torch.ones(())
    if CASES[name]["settings"].get("loss_type") in (["ipo"], ["sigmoid_norm"]):  # TRL logs sums even there
        lengths = inputs["mask"].sum(-1)
    chosen_lengths, rejected_lengths = lengths.expand(len(inputs["mask"])).chunk(2)
    metrics = CASES[name]["metrics"]
    assert (loss.chosen_rewards * chosen_lengths).mean().item() == pytest.approx(metrics["rewards/chosen"], abs=1e-5)
    assert (loss.rejected_rewards * rejected_lengths).mean().item() == pytest.approx(
        metrics["rewards/rejected"], abs=1e-5
    )
    assert not loss.chosen_rewards.requires_grad


def test_log_odds_ratio_equals_trl_metric():
    inputs = inputs_of("orpo")
    log_odds = log_odds_ratio(*means(inputs["logps"], inputs["mask"]).chunk(2))
    assert log_odds.mean().item() == pytest.approx(CASES["orpo"]["metrics"]["log_odds_chosen"], abs=1e-5)


def test_trl_ignores_label_smoothing_and_we_do_not():
    """That its number must not be taken for cDPO's is the reason the case is recorded."""
    assert CASES["sigmoid_label_smoothing"]["loss"] == CASES["sigmoid"]["loss"]
    inputs = inputs_of("sigmoid")
    logps = *sums(inputs["logps"], inputs["mask"]).chunk(2), *sums(inputs["ref_logps"], inputs["mask"]).chunk(2)
    smoothed = dpo_loss(*logps, beta=0.1, label_smoothing=0.2).losses.mean()
    swapped = dpo_loss(logps[1], logps[0], logps[3], logps[2], beta=0.1).losses.mean()
    assert smoothed.item() == pytest.approx(0.8 * CASES["sigmoid"]["loss"] + 0.2 * swapped.item(), abs=1e-6)
    assert abs(smoothed.item() - CASES["sigmoid"]["loss"]) > 1e-3
