"""T3, T4, T11: before the first update the policy is its reference and its sampler, at any temperature."""

import pytest
import torch
from lightning.pytorch import Callback
from short_runs import deviation, optimizer, write_model

from lit_rlhf.rollout import Sampling


def largest_log_ratio(tokens, other):
    mask = tokens["completion_mask"]
    return float((tokens["logps"] - tokens[other])[mask].abs().max())


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_ratio_is_one_and_kl_is_zero(algorithm, run, temperature):
    sampling = Sampling(temperature=temperature, max_new_tokens=10)
    seen = run(algorithm, beta=0.1, windows_per_phase=2, sampling=sampling)  # two windows: old log-probs are kept
    for other in ("old_logps", "ref_logps", "sampler_logps"):
        assert largest_log_ratio(seen.tokens[0], other) < 1e-5, other
    assert abs(seen.metrics[0]["kl"]) < 1e-6
    assert seen.metrics[0]["clip_ratio/region_mean"] == 0


def test_what_it_would_score_is_what_it_showed(algorithm, run):
    """`score` of callbacks/README.md: the log-probs of `training_step`, at the sampling temperature."""
    differences = []

    class Score(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            tokens = outputs["tokens"]
            differences.append(float((pl_module.score(tokens) - tokens["logps"]).abs().max()))

    sampling = Sampling(temperature=0.6, max_new_tokens=10)
    run(algorithm, sampling=sampling, optimizer=optimizer("SGD", 0.0), callbacks=[Score()])
    assert max(differences) < 1e-5


def test_correcting_for_the_sampler_changes_nothing_where_it_is_the_policy(algorithm, run):
    assert deviation(run(algorithm), run(algorithm, tis_cap=2.0)) < 1e-4


def test_another_temperature_is_another_distribution(run):
    """Or the test of 0.6 would prove nothing."""
    warm, cool = (run("GRPO", sampling=Sampling(temperature=t, max_new_tokens=10)) for t in (1.0, 0.6))
    mean = [float(seen.tokens[0]["logps"][seen.tokens[0]["completion_mask"]].mean()) for seen in (warm, cool)]
    assert mean[1] > mean[0] + 0.2


class TrainMode(Callback):
    """Whether every module of the policy was in train mode at each step."""

    def __init__(self):
        self.flags = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.flags.append(all(module.training for module in pl_module.backbone.policy.modules()))


@pytest.fixture(scope="session", params=["gpt2", "llama"])
def model_with_dropout(request, tmp_path_factory):
    settings = {
        "gpt2": {"resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3},
        "llama": {"attention_dropout": 0.5},
    }
    folder = tmp_path_factory.mktemp(f"{request.param}-dropout")
    return write_model(folder, request.param, **settings[request.param])


def test_a_model_with_dropout_trains_without_it(algorithm, run, model_with_dropout):
    mode = TrainMode()
    seen = run(algorithm, model=model_with_dropout, beta=0.1, windows_per_phase=2, callbacks=[mode])
    assert mode.flags == [True]
    for other in ("old_logps", "ref_logps", "sampler_logps"):
        assert largest_log_ratio(seen.tokens[0], other) < 1e-5, other


def test_dropout_that_is_asked_for_breaks_the_identities(run, model_with_dropout):
    seen = run("GRPO", model=model_with_dropout, beta=0.1, windows_per_phase=2, dropout=True)
    assert largest_log_ratio(seen.tokens[0], "ref_logps") > 0.01


def test_a_policy_changed_in_memory_is_measured_against_the_start(algorithm, run):
    def change(module):
        for parameter in module.backbone.policy.parameters():
            parameter.data.mul_(1.2)

    seen = run(algorithm, beta=0.1, change=change)
    assert seen.metrics[0]["kl"] > 0.001
    assert largest_log_ratio(seen.tokens[0], "sampler_logps") < 1e-5  # what samples is what is trained


def test_the_reference_stays_while_the_policy_moves(algorithm, run):
    seen = run(algorithm, beta=0.1, updates=3, epochs_per_phase=3, optimizer=optimizer("SGD", 0.05))
    first, _, last = seen.tokens
    assert torch.equal(first["ref_logps"], last["ref_logps"])
    assert torch.equal(first["old_logps"], last["old_logps"])
    assert largest_log_ratio(last, "ref_logps") > 0.01


def test_adapters_start_as_their_own_reference(run):
    seen = run("GRPO", beta=0.1, lora={"r": 2, "alpha": 4}, updates=2, epochs_per_phase=2)
    assert largest_log_ratio(seen.tokens[0], "ref_logps") < 1e-5
    assert largest_log_ratio(seen.tokens[1], "ref_logps") > 1e-4
    assert torch.equal(seen.tokens[0]["ref_logps"], seen.tokens[1]["ref_logps"])
