"""Batches of like length in a project that has never heard of lit_rlhf; what is left alone; the dry run's traces."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from length_bucketing_runs import Memory, Project, Texts, collate, lengths
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler

from lit_rlhf_callbacks import LengthBucketing, UserError
from lit_rlhf_callbacks.bucket_loader import BucketLoader

Fit = Callable[..., tuple[Trainer, LightningModule]]
ROWS = lengths(30)


def make(**settings: Any) -> Callable[[], Project]:
    return lambda: Project(ROWS, Memory(), **settings)


def weights(module: LightningModule) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def test_every_epoch_trains_every_row_in_another_order_under_the_budget(fit: Fit) -> None:
    trainer, module = fit(make(), [LengthBucketing(max_tokens=100)], max_steps=-1, max_epochs=2)
    _, again = fit(make(), [LengthBucketing(max_tokens=100)], max_steps=-1, max_epochs=2)

    assert again.seen == module.seen
    half = len(module.seen) // 2
    for epoch in (module.seen[:half], module.seen[half:]):
        assert sorted(row for rows in epoch for row in rows) == list(range(30))
        assert all(len(rows) * max(ROWS[row] for row in rows) <= 100 for rows in epoch)
    assert module.seen[:half] != module.seen[half:]
    metrics = trainer.callback_metrics
    assert metrics["padding/waste"] < metrics["padding/waste_before"]
    assert metrics["padding/tokens_per_second"] > 0
    assert metrics["padding/num_split"] == 0


def test_without_a_budget_the_number_of_updates_stays(fit: Fit, caplog: pytest.LogCaptureFixture) -> None:
    plain, _ = fit(make(), [], max_steps=-1, max_epochs=2)
    with caplog.at_level("INFO"):
        bucketed, _ = fit(make(), [LengthBucketing()], max_steps=-1, max_epochs=2)

    assert bucketed.global_step == plain.global_step == 16
    (line,) = [r.getMessage() for r in caplog.records if "LengthBucketing" in r.getMessage()]
    assert "30 rows of 3 to 40 tokens in 8 batches (before: 8); padding" in line


def test_measured_waste_is_the_plan_s(fit: Fit) -> None:
    """By hand, from what the module was given."""
    returned: list[float] = []

    class Watching(Project):
        def on_train_batch_end(self, outputs: dict[str, Any], batch: dict[str, Tensor], batch_idx: int) -> None:
            waste = outputs["metrics"]["padding/waste"]
            assert waste == pytest.approx(1 - batch["attention_mask"].float().mean().item())
            returned.append(waste)

    fit(lambda: Watching(ROWS, Memory()), [LengthBucketing()], max_steps=5)
    assert len(set(returned)) > 1


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_dry_run_leaves_no_trace(fit: Fit, precision: str) -> None:
    """The same batches from a plain loader, without the callback, give the same weights bit for bit."""

    class Sensitive(Project):
        def __init__(self, **settings: Any) -> None:
            super().__init__(ROWS, Memory(), dropout=0.3, **settings)
            self.norm = nn.BatchNorm1d(16, affine=False)
            self.history: list[float] = []

        def loss(self, batch: dict[str, Tensor]) -> Tensor:
            self.norm(self.embedding(batch["input_ids"]).transpose(1, 2))
            random.random()
            loss = super().loss(batch)
            self.history.append(float(loss.detach()))
            return loss * (1 + random.random())

    _, module = fit(Sensitive, [LengthBucketing()], precision=precision, max_steps=6)

    noise = torch.rand(3)

    class Replayed(Sensitive):
        def train_dataloader(self) -> DataLoader:
            return DataLoader(self.texts, batch_sampler=module.seen, collate_fn=collate)

    _, replayed = fit(Replayed, [], precision=precision, max_steps=6)

    assert module.seen == replayed.seen
    assert torch.equal(weights(module), weights(replayed))
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), replayed.buffers(), strict=True))
    assert module.history == replayed.history
    assert module.calls == replayed.calls == 6
    assert torch.equal(noise, torch.rand(3))


def test_what_was_replaced_comes_back(fit: Fit) -> None:
    trainer, module = fit(make(), [LengthBucketing()])
    assert "training_step" not in vars(module)
    assert "log" not in vars(module)
    assert not {"backward", "process_dataloader"} & set(vars(trainer.strategy))


def test_a_loader_given_to_fit_and_one_of_a_data_module(fit: Fit, tmp_path: Path) -> None:
    class Data(LightningDataModule):
        def train_dataloader(self) -> DataLoader:
            return DataLoader(Texts(ROWS), batch_size=4, collate_fn=collate, num_workers=1, persistent_workers=True)

    class Without(Project):
        train_dataloader = LightningModule.train_dataloader

    settings = {"logger": False, "max_epochs": 2, "enable_progress_bar": False, "enable_checkpointing": False}
    seen = []
    for data in (Data(), Data().train_dataloader()):
        seed_everything(0, verbose=False)
        trainer = Trainer(callbacks=[LengthBucketing()], default_root_dir=tmp_path, accelerator="cpu", **settings)
        module = Without(ROWS, Memory())
        trainer.fit(module, data)
        assert isinstance(trainer.train_dataloader, BucketLoader)
        seen.append(module.seen)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 16


def test_a_run_resumed_in_mid_epoch_goes_on_with_the_next_batch(fit: Fit, tmp_path: Path) -> None:
    checkpoints = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    _, whole = fit(make(), [LengthBucketing(), checkpoints], max_steps=20)
    for step in (3, 8, 11):  # 8: an epoch's last batch
        _, resumed = fit(make(), [LengthBucketing()], max_steps=20, ckpt_path=tmp_path / f"step={step}.ckpt")
        assert resumed.seen == whole.seen[step:]
        assert torch.equal(weights(resumed), weights(whole))


def test_a_run_resumed_with_another_budget_says_what_that_means(fit: Fit, tmp_path: Path) -> None:
    checkpoints = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=3)
    fit(make(), [LengthBucketing(), checkpoints], max_steps=3)
    with pytest.warns(UserWarning, match="but 8 in the checkpoint; this epoch goes on at the same number"):
        trainer, _ = fit(make(), [LengthBucketing(max_tokens=60)], max_steps=6, ckpt_path=tmp_path / "step=3.ckpt")
    assert trainer.global_step == 6


def test_boring_model_is_left_alone_with_one_line(fit: Fit, recwarn: pytest.WarningsRecorder) -> None:
    _, module = fit(BoringModel, [LengthBucketing()])
    lines = [str(w.message) for w in recwarn if "LengthBucketing" in str(w.message)]
    assert lines == [
        "LengthBucketing leaves the batches as they are: rows have no input_ids; give length_fn, from a row of the "
        "dataset to its tokens."
    ]
    _, plain = fit(BoringModel, [])
    assert torch.equal(weights(module), weights(plain))


class Stream(IterableDataset):
    def __iter__(self):
        texts = Texts(ROWS)
        return (texts[row] for row in range(30))


class Own:
    def __iter__(self):
        return iter([collate([Texts(ROWS)[row]]) for row in range(8)])


class Pairs(Sampler):
    def __iter__(self):
        return iter([[0, 1], [2, 3]] * 4)

    def __len__(self):
        return 8


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: DataLoader(Stream(), batch_size=4, collate_fn=collate), "map-style dataset"),
        (lambda: DataLoader(Texts(ROWS), batch_sampler=Pairs(), collate_fn=collate), "a way of its own"),
        (lambda: Own(), "a DataLoader"),
        (
            lambda: DataLoader(
                Texts(ROWS), 4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 30, 30), collate_fn=collate
            ),
            "the order of WeightedRandomSampler would be lost",
        ),
        (
            lambda: DataLoader(Texts(ROWS), 4, sampler=RandomSampler(ROWS, replacement=True), collate_fn=collate),
            "the order of RandomSampler would be lost",
        ),
    ],
)
def test_other_loaders_are_left_alone_with_one_line(fit: Fit, loader: Callable[[], Any], reason: str) -> None:
    class Other(Project):
        def train_dataloader(self) -> Any:
            return loader()

    with pytest.warns(UserWarning, match=f"leaves the batches as they are: .*{reason}"):
        trainer, _ = fit(lambda: Other(ROWS, Memory()), [LengthBucketing()])
    assert trainer.global_step == 4
    assert "padding/waste" not in trainer.callback_metrics


def test_manual_optimisation_gets_batches_only(fit: Fit) -> None:
    class Manual(Project):
        def __init__(self) -> None:
            super().__init__(ROWS, Memory())
            self.automatic_optimization = False

        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
            self.calls += 1
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    with pytest.warns(UserWarning, match="manual optimisation; no dry run"):
        trainer, module = fit(Manual, [LengthBucketing()], max_steps=4)
    assert module.calls == 4
    assert "padding/waste" in trainer.callback_metrics


def test_lengths_of_another_kind_of_row(fit: Fit) -> None:
    class Pairs(Project):
        def train_dataloader(self) -> DataLoader:
            rows = [{"chosen": row["input_ids"], "rejected": row["labels"]} for row in self.texts]

            def joined(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
                chosen = [row["chosen"] for row in rows]
                return collate([{"input_ids": ids, "labels": ids, "row": torch.tensor(0)} for ids in chosen])

            return DataLoader(rows, batch_size=4, collate_fn=joined)

    callback = LengthBucketing(max_tokens=80, length_fn=lambda row: len(row["chosen"]))
    trainer, _ = fit(lambda: Pairs(ROWS, Memory()), [callback])
    assert trainer.callback_metrics["padding/waste"] < trainer.callback_metrics["padding/waste_before"]


def test_a_collate_fn_that_pads_to_a_fixed_length_is_told(fit: Fit) -> None:
    class Fixed(Project):
        def train_dataloader(self) -> DataLoader:
            def padded(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
                batch = collate(rows)
                room = 100 - batch["input_ids"].shape[1]
                fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
                return batch | {n: nn.functional.pad(batch[n], (0, room), value=value) for n, value in fill.items()}

            return DataLoader(self.texts, batch_size=4, collate_fn=padded)

    with pytest.warns(UserWarning, match="longest row has 40 tokens, but collate_fn pads to 100"):
        trainer, _ = fit(lambda: Fixed(ROWS, Memory()), [LengthBucketing()])
    assert trainer.callback_metrics["padding/waste"] > 0.5  # as computed, not as planned


def test_a_step_without_batch_idx_and_one_that_empties_its_batch(fit: Fit) -> None:
    class Short(Project):
        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            return self.loss({name: batch.pop(name) for name in list(batch)})

    memory = Memory(forward=90)
    _, parts = fit(lambda: Short(ROWS, memory), [LengthBucketing()])
    _, whole = fit(lambda: Short(ROWS, Memory()), [LengthBucketing()])
    assert memory.failures
    assert (weights(parts) - weights(whole)).abs().max() < 1e-5


def test_batch_normalisation_is_not_cut(fit: Fit) -> None:
    class Normalised(Project):
        def __init__(self) -> None:
            super().__init__(ROWS, Memory(forward=90))
            self.norm = nn.BatchNorm1d(16)

    with pytest.raises(UserError, match="batch normalisation"):
        fit(Normalised, [LengthBucketing()])
