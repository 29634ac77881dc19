import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from lit_rlhf_callbacks import ExactResume, RunFiles
from lit_rlhf_callbacks.rng_state import get_rng_state, set_rng_state
from lit_rlhf_callbacks.run_clock import run_clock

Fit = Callable[..., tuple[Trainer, LightningModule]]


class ResumableList:
    """The smallest loader that saves its place."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.start, self.given = batches, 0, 0

    def __iter__(self):
        self.given, self.start = self.start, 0
        for batch in self.batches[self.given :]:
            self.given += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["given"]


@pytest.fixture
def noisy(foreign_lm: type) -> type[LightningModule]:
    class Noisy(foreign_lm):  # type: ignore[misc, valid-type]
        """Dropout draws from torch; this draws from the other generators too."""

        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * (1 + random.random() + numpy.random.rand())

        def train_dataloader(self):
            return ResumableList(list(super().train_dataloader())[:4])

    return Noisy


@pytest.mark.parametrize("step", [3, 4, 6])  # mid-epoch, an epoch's last batch, in the second epoch
def test_a_resumed_run_is_the_run_that_never_stopped(fit: Fit, noisy: type, tmp_path: Path, step: int) -> None:
    def callbacks() -> list[Callback]:
        return [ExactResume(), ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1)]

    _, whole = fit(noisy, callbacks(), max_steps=8)
    (checkpoint,) = tmp_path.glob(f"*step={step}.ckpt")
    torch.rand(5), random.random(), numpy.random.rand()
    _, resumed = fit(noisy, callbacks(), max_steps=8, ckpt_path=checkpoint)

    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_without_it_the_resumed_run_differs(fit: Fit, noisy: type, tmp_path: Path) -> None:
    """Or the test above would prove nothing."""
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=3)
    _, whole = fit(noisy, [checkpoint], max_steps=4)
    _, resumed = fit(noisy, [], max_steps=4, ckpt_path=tmp_path / Path(checkpoint.best_model_path).name)

    same = [torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)]
    assert not all(same)


def test_another_number_of_ranks_is_said(fit: Fit, noisy: type, tmp_path: Path) -> None:
    fit(noisy, [ExactResume(), ModelCheckpoint(tmp_path, every_n_train_steps=2)], max_steps=2)
    (path,) = tmp_path.glob("*.ckpt")
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["lit_rlhf_rng"] *= 2
    torch.save(checkpoint, path)

    with pytest.warns(UserWarning, match="saved by 2 ranks, resumed by 1"):
        fit(noisy, [ExactResume()], max_steps=3, ckpt_path=path)


def test_hours_go_on_whichever_callback_saved_them(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [ExactResume(), ModelCheckpoint(tmp_path, every_n_train_steps=2)], max_steps=2)
    (path,) = tmp_path.glob("*.ckpt")
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["lit_rlhf_clock"] = {"hours": 5.0, "device_hours": 40.0}
    torch.save(checkpoint, path)
    trainer, _ = fit(foreign_policy, [RunFiles()], max_steps=3, ckpt_path=path)

    hours, device_hours = run_clock(trainer).read()
    assert 5.0 < hours < 5.1
    assert 40.0 < device_hours < 40.1


def test_states_come_back() -> None:
    device = torch.device("cpu")
    state = get_rng_state(device)
    first = (random.random(), torch.rand(3).tolist(), numpy.random.rand(), numpy.random.randn())
    set_rng_state(state, device)

    assert (random.random(), torch.rand(3).tolist(), numpy.random.rand(), numpy.random.randn()) == first


class SaveInside(Callback):
    """As a ModelCheckpoint with train_time_interval does, when its time comes between two updates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ):
        trainer.save_checkpoint(self.folder / f"{batch_idx}.ckpt")


def test_a_checkpoint_inside_a_window_is_warned_of_once(fit: Fit, noisy: type, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="after 1 of 2 micro-batches of update 1") as caught:
        fit(noisy, [ExactResume(), SaveInside(tmp_path)], accumulate_grad_batches=2, max_steps=4)
    assert len([each for each in caught if "micro-batches of update" in str(each.message)]) == 1


def test_checkpoints_between_updates_are_not_warned_of(fit: Fit, noisy: type, tmp_path: Path) -> None:
    by_updates = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*micro-batches of update.*")
        fit(noisy, [ExactResume(), by_updates], accumulate_grad_batches=2, max_steps=4)
