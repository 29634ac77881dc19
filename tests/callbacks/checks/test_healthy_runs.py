"""Real algorithms as they are shipped: every check is ok, or says what it lacks; and training does not notice it."""

import pytest
import torch
from checked_runs import run, weights_of

ALWAYS = {"trainable", "update_reaches_weights", "update_direction", "double_bos", "held_out_prompts"}
OFFLINE = {"supervised_tokens", "label_alignment"}
OK = {
    "GRPO": {"reference_is_start", "reference_unmoved", "sampler_agrees", "ratio_is_one", "reward_function"}
    | {"advantages_follow_rewards", "kl_estimator"},
    "RLOO": {"reference_is_start", "reference_unmoved", "sampler_agrees", "ratio_is_one", "reward_function"}
    | {"advantages_follow_rewards"},
    "DPO": OFFLINE | {"reference_is_start", "reference_unmoved", "start_values", "stop_token"},
    "IPO": OFFLINE | {"reference_is_start", "reference_unmoved", "start_values", "stop_token"},
    "KTO": OFFLINE | {"reference_is_start", "reference_unmoved", "start_values", "stop_token"},
    "ORPO": OFFLINE | {"stop_token"},
    "SFT": OFFLINE | {"stop_token", "start_likelihood"},
    "BradleyTerry": OFFLINE | {"start_values", "reward_model_swap"},
    "PlackettLuce": OFFLINE | {"reward_model_swap"},
    "OutcomeReward": OFFLINE | {"start_values", "reward_model_swap"},
}


@pytest.mark.parametrize("name", OK)
def test_what_holds_is_found_to_hold(name):
    settings = {"beta": 0.05} if name in ("GRPO", "RLOO") else {}
    checked, _ = run(name, **settings)
    assert checked.failures() == set()
    found = {result.name for result in checked.results if result.status == "ok"}
    assert (ALWAYS | OK[name]) - found == set()


def test_accumulated_windows_are_looked_at_whole():
    checked, _ = run("DPO", trainer={"accumulate_grad_batches": 4})
    assert checked.failures() == set()
    assert [result.measured["rows"] for result in checked.of("stop_token")] == [32]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("GRPO", "32-true"),
        ("SFT", "32-true"),
        ("BradleyTerry", "32-true"),
        pytest.param("DPO", "bf16-mixed", marks=pytest.mark.slow),
    ],
)
def test_training_does_not_notice(name, precision, monkeypatch):
    settings = {"beta": 0.05} if name == "GRPO" else {}  # with a reference, more is scored
    _, with_checks = run(name, trainer={"precision": precision}, **settings)
    monkeypatch.setattr("checked_runs.ExactChecks.after_update", lambda self, *args: [])
    monkeypatch.setattr("checked_runs.ExactChecks.before_update", lambda self, *args: None)
    monkeypatch.setattr("checked_runs.ExactChecks.on_train_start", lambda self, *args: [])
    _, without = run(name, trainer={"precision": precision}, **settings)
    assert torch.equal(weights_of(with_checks), weights_of(without))


def test_looks_are_made_at_the_first_updates_and_then_rarely():
    checked, _ = run("SFT", updates=6)
    assert [result.step for result in checked.of("update_reaches_weights")] == [1, 2, 3]
    assert checked.checks.is_due(100)
    assert not checked.checks.is_due(101)
