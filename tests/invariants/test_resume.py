"""T8: stopped after any update and resumed, a run is the run that never stopped, to the last bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from resume_runs import NUM_UPDATES, SETTINGS, resumable, resumable_on_two_ranks
from short_runs import train, write_model

import lit_rlhf.algorithms as algorithms
from lit_rlhf_callbacks.errors import UserError

MICRO_BATCHES = SETTINGS["accumulate"]


def often_alike(completion_ids):
    """A reward that is often the same throughout a group."""
    return [float(ids[0] % 4 == 0) for ids in completion_ids]


@pytest.fixture(scope="session")
def whole_run(model, data, tmp_path_factory):
    """A function: an algorithm's whole run, and the folder of its checkpoints."""
    runs = {}

    def get(algorithm, **settings):
        key = repr((algorithm, settings))
        if key not in runs:
            folder = tmp_path_factory.mktemp(algorithm)
            runs[key] = resumable(algorithm, folder, **{"model": model, "data": data, **settings}), folder
        return runs[key]

    return get


def assert_same_rest(whole, resumed, num_updates):
    """Check that what came after ``num_updates`` updates is the same to the last bit."""
    rest = whole.tokens[num_updates * MICRO_BATCHES :]
    assert len(resumed.tokens) == len(rest) > 0
    for mine, its in zip(rest, resumed.tokens, strict=True):
        assert mine.keys() == its.keys()
        assert all(torch.equal(mine[name], its[name]) for name in mine)
    assert resumed.metrics == whole.metrics[num_updates:]
    assert all(torch.equal(whole.weights[name], resumed.weights[name]) for name in whole.weights)


@pytest.mark.parametrize("num_updates", range(1, NUM_UPDATES))
def test_a_resumed_run_is_the_run_that_never_stopped(algorithm, whole_run, model, data, tmp_path, num_updates):
    whole, folder = whole_run(algorithm)
    checkpoint = folder / f"step={num_updates}.ckpt"
    resumed = resumable(algorithm, tmp_path, model=model, data=data, ckpt_path=checkpoint)
    assert_same_rest(whole, resumed, num_updates)


def test_what_the_whole_run_covers(algorithm, whole_run):
    """Phases that change the policy, of uneven size, in two epochs; or the test above would say little."""
    whole, _ = whole_run(algorithm)
    sizes = [len(tokens["input_ids"]) for tokens in whole.tokens if tokens]
    assert sum(sizes[:8]) == 2 * 16
    assert sum(sizes[8:16]) == 2 * 8
    assert all(metrics["entropy"] > 0.3 for metrics in whole.metrics)
    moved = [(whole.weights[name] - whole.start[name]).abs().max() for name in whole.start]
    assert max(moved) > 0.01


def test_dropout_goes_on_with_its_random_numbers(whole_run, data, tmp_path, tmp_path_factory):
    model = write_model(tmp_path_factory.mktemp("dropout"), "gpt2")
    whole, folder = whole_run("GRPO", model=model, dropout=True)
    settings = {"model": model, "data": data, "dropout": True}
    assert_same_rest(whole, resumable("GRPO", tmp_path, ckpt_path=folder / "step=3.ckpt", **settings), 3)


@pytest.mark.parametrize("num_updates", range(1, NUM_UPDATES))
def test_a_checkpoint_of_an_evaluation_is_as_good(whole_run, model, data, tmp_path, num_updates):
    whole, folder = whole_run("GRPO", evaluate=True)
    settings = {"model": model, "data": data, "evaluate": True}
    resumed = resumable("GRPO", tmp_path, ckpt_path=folder / f"step={num_updates}.ckpt", **settings)
    assert_same_rest(whole, resumed, num_updates)
    assert {name: whole.logged[name] for name in resumed.logged} == resumed.logged
    assert resumed.logged["eval/n"] == 3


def test_dynamic_sampling_needs_no_cursor(whole_run, model, data, tmp_path):
    settings = {"drop_zero_std": True, "max_refill_rounds": 2, "rewards": [often_alike]}
    whole, folder = whole_run("DAPO", **settings)
    assert any(metrics.get("dynamic_sampling/extra_prompts", 0) > 0 for metrics in whole.metrics)
    resumed = resumable("DAPO", tmp_path, model=model, data=data, ckpt_path=folder / "step=4.ckpt", **settings)
    assert_same_rest(whole, resumed, 4)


def test_a_killed_run_goes_on(whole_run, model, data, tmp_path):
    whole, _ = whole_run("GRPO")
    program = Path(__file__).with_name("resume_runs.py")
    arguments = {"name": "GRPO", "folder": str(tmp_path), "model": model, "data": data, "wait_after": 6}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, program, json.dumps(arguments)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "update 6\n"
        finally:
            process.kill()
    resumed = resumable("GRPO", tmp_path, model=model, data=data, ckpt_path=tmp_path / "last.ckpt")
    assert_same_rest(whole, resumed, 6)


@pytest.mark.ddp
@pytest.mark.parametrize("num_updates", [3, 4, 6])
def test_two_ranks_go_on(ranks, model, data, tmp_path, num_updates):
    settings = {"model": model, "data": data}
    whole = ranks(resumable_on_two_ranks, "GRPO", tmp_path / "whole", **settings)
    checkpoint = tmp_path / "whole" / f"step={num_updates}.ckpt"
    resumed = ranks(resumable_on_two_ranks, "GRPO", tmp_path / "rest", ckpt_path=checkpoint, **settings)
    for mine, its in zip(whole, resumed, strict=True):
        assert_same_rest(mine, its, num_updates)


@pytest.mark.ddp
def test_another_number_of_ranks_may_not_go_on_within_a_phase(ranks, model, data, tmp_path):
    ranks(resumable_on_two_ranks, "GRPO", tmp_path, model=model, data=data, updates=5)
    with pytest.raises(UserError, match="saved in the middle of a phase by 2 processes, resumed by 1"):
        resumable("GRPO", tmp_path, model=model, data=data, ckpt_path=tmp_path / "step=3.ckpt")
    phase_end = tmp_path / "step=4.ckpt"
    with pytest.warns(UserWarning, match="saved by 2 ranks, resumed by 1: random states are not restored"):
        resumed = resumable("GRPO", tmp_path / "on", model=model, data=data, ckpt_path=phase_end, updates=5)
    assert len(resumed.metrics) == 1


@pytest.mark.parametrize("changed", [{"accumulate": 1}, {"windows_per_phase": 4}, {"epochs_per_phase": 1}])
def test_another_cut_may_not_go_on(whole_run, model, data, tmp_path, changed):
    """Lightning and the loader count micro-batches; the update in the making would be a part of one."""
    _, folder = whole_run("GRPO")
    with pytest.raises(UserError, match="ckpt_path: saved by a run of 8 micro-batches per phase, resumed with"):
        resumable("GRPO", tmp_path, model=model, data=data, ckpt_path=folder / "step=4.ckpt", **changed)


def test_the_reference_is_not_saved_and_nothing_needs_trust(algorithm, whole_run):
    _, folder = whole_run(algorithm)
    checkpoint = torch.load(folder / "step=3.ckpt", weights_only=True)
    assert checkpoint["state_dict"]
    assert all(name.startswith("backbone.policy.") for name in checkpoint["state_dict"])
    assert checkpoint["start_policy"]["start_hash"]
    assert checkpoint["phase"]["experience"][0]["ref_logps"].any()


def test_a_checkpoint_within_a_phase_loads_for_use(algorithm, whole_run):
    whole, folder = whole_run(algorithm)
    kind = getattr(algorithms, algorithm)
    module = kind.load_from_checkpoint(folder / "last.ckpt", rewards=["exact_match"])
    assert module.beta == SETTINGS["beta"]
    for name, parameter in module.backbone.policy.named_parameters():
        assert torch.equal(parameter, whole.weights[name])


def test_another_start_policy_is_refused(data, tmp_path):
    model, data = write_model(tmp_path / "model"), {"data": data}
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=1, filename="{step}")
    train("GRPO", model=model, callbacks=[checkpoint], trainer={"enable_checkpointing": True}, **data)
    write_model(model, seed=1)
    with pytest.raises(UserError, match="is not what this run started from") as error:
        train("GRPO", model=model, updates=2, ckpt_path=tmp_path / "step=1.ckpt", **data)
    assert "\n" not in str(error.value)
