"""A run that goes on where it stopped, and runs that lost something on the way."""

import pytest
import torch
from checked_runs import run
from lightning.pytorch.callbacks import ModelCheckpoint

from lit_rlhf_callbacks import ExactResume

SEAM = {"resume_optimizer_state", "resume_random_state", "resume_learning_rate", "resume_data_order"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The second update of a run."""
    folder = tmp_path_factory.mktemp("run")
    save = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=2)
    run("SFT", updates=2, callbacks=[ExactResume(), save], trainer={"enable_checkpointing": True})
    return folder / "step=2.ckpt"


def go_on(checkpoint, **settings):
    checked, _ = run("SFT", updates=3, callbacks=[ExactResume()], ckpt_path=checkpoint, **settings)
    return checked


def test_a_whole_resume(checkpoint):
    checked = go_on(checkpoint)
    assert checked.failures() == set()
    assert {result.name for result in checked.results if result.status == "ok"} >= SEAM


def test_what_a_checkpoint_lost_is_missed(checkpoint, tmp_path):
    state = torch.load(checkpoint, weights_only=False)
    state["optimizer_states"][0]["state"] = {}
    state["loops"]["fit_loop"]["state_dict"]["combined_loader"] = {}
    torch.save(state, tmp_path / "broken.ckpt")
    causes = {
        cause for kind, cause in go_on(tmp_path / "broken.ckpt", seed=1).causes() if kind == "resume_discontinuity"
    }
    assert causes >= {"optimizer_state_lost", "data_order_lost"}  # seeded alike, the random states may be the same


def test_another_learning_rate(checkpoint):
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 5e-3, "weight_decay": 0.0}}
    assert go_on(checkpoint, optimizer=optimizer).causes() == {("resume_discontinuity", "learning_rate_jumped")}


def test_without_random_states(checkpoint, tmp_path):
    state = torch.load(checkpoint, weights_only=False)
    del state["lit_rlhf_rng"]
    torch.save(state, tmp_path / "broken.ckpt")
    assert go_on(tmp_path / "broken.ckpt", seed=5).causes() == {("resume_discontinuity", "rng_not_restored")}
