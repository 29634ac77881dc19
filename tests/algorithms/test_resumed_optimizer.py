import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, ReduceLROnPlateau, SequentialLR
from torch.utils.data import DataLoader

from lit_rlhf.algorithms.resumed_optimizer import ConfiguredOptimizer


class Foreign(LightningModule):
    def __init__(self, lr, weight_decay=0.0, schedule=None):
        super().__init__()
        self.settings = {"lr": lr, "weight_decay": weight_decay}
        self.schedule = schedule
        self.layer = torch.nn.Linear(2, 1)
        self.lrs = []

    def training_step(self, batch, batch_idx):
        self.lrs.append(self.optimizers().param_groups[0]["lr"])
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), **self.settings)
        if self.schedule is None:
            return optimizer
        scheduler = {"scheduler": self.schedule(optimizer), "interval": "step", "monitor": "loss", "strict": False}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def train_dataloader(self):
        return DataLoader(torch.ones(8, 2), batch_size=1)


def run(folder, module, max_steps, ckpt_path=None):
    checkpoint = ModelCheckpoint(folder, every_n_train_steps=1, save_top_k=-1)
    trainer = Trainer(
        callbacks=[ConfiguredOptimizer(), checkpoint],
        max_steps=max_steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, ckpt_path=ckpt_path)
    return trainer


def warmup_then_cosine(optimizer, period=20):
    stages = [LinearLR(optimizer, 0.5, total_iters=2), CosineAnnealingLR(optimizer, period)]
    return SequentialLR(optimizer, stages, milestones=[2])


@pytest.mark.parametrize("schedule", [None, warmup_then_cosine])
def test_a_changed_lr_holds_after_a_resume(tmp_path, schedule):
    run(tmp_path, Foreign(1e-2, schedule=schedule), 4)
    resumed = Foreign(1e-3, schedule=schedule)
    trainer = run(tmp_path, resumed, 8, tmp_path / "epoch=0-step=4.ckpt")
    fresh = Foreign(1e-3, schedule=schedule)
    run(tmp_path / "fresh", fresh, 8)
    assert resumed.lrs == pytest.approx(fresh.lrs[4:])
    assert trainer.global_step == 8


@pytest.mark.parametrize("schedule", [None, warmup_then_cosine])
def test_an_unchanged_config_resumes_exactly(tmp_path, schedule):
    whole = Foreign(1e-2, 0.1, schedule)
    run(tmp_path / "whole", whole, 8)
    resumed = Foreign(1e-2, 0.1, schedule)
    run(tmp_path, resumed, 8, tmp_path / "whole" / "epoch=0-step=3.ckpt")
    assert resumed.lrs == whole.lrs[3:]


def test_weight_decay_and_the_length_of_a_schedule_follow_the_config(tmp_path, caplog):
    run(tmp_path, Foreign(1e-2, 0.0, warmup_then_cosine), 4)
    resumed = Foreign(1e-2, 0.5, lambda optimizer: warmup_then_cosine(optimizer, period=40))
    with caplog.at_level("INFO"):
        trainer = run(tmp_path, resumed, 5, tmp_path / "epoch=0-step=4.ckpt")
    assert trainer.optimizers[0].param_groups[0]["weight_decay"] == 0.5
    assert trainer.lr_scheduler_configs[0].scheduler._schedulers[1].T_max == 40
    assert "weight_decay 0.0 -> 0.5" in caplog.text


def test_what_a_schedule_reduced_by_itself_is_not_taken_for_a_change(tmp_path):
    run(tmp_path, Foreign(1e-2, schedule=ReduceLROnPlateau), 2)
    saved = torch.load(tmp_path / "epoch=0-step=2.ckpt", weights_only=True)
    saved["optimizer_states"][0]["param_groups"][0]["lr"] = 1e-4  # as after two plateaus
    torch.save(saved, tmp_path / "reduced.ckpt")
    resumed = Foreign(1e-2, schedule=ReduceLROnPlateau)
    run(tmp_path, resumed, 3, tmp_path / "reduced.ckpt")
    assert resumed.lrs == [1e-4]
