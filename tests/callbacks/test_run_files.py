import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from lit_rlhf_callbacks import PolicyMonitor, RunFiles, RunRecord
from lit_rlhf_callbacks.run_dir import assign_run_dir

Fit = Callable[..., tuple[Trainer, LightningModule]]


def rows(folder: Path) -> list[dict[str, float]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: float(cell) for name, cell in row.items() if cell} for row in csv.DictReader(file)]


class Logs(BoringModel):
    """Logs what it is told to; its values say when they were made."""

    def training_step(self, batch, batch_idx):
        loss = self.step(batch)
        self.log("micro_batch", float(batch_idx))
        self.log("per_epoch", float(batch_idx), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_at", float(self.global_step))


@pytest.mark.parametrize("monitor_first", [True, False])
def test_a_row_holds_its_update_and_the_evaluations_after_it(fit: Fit, tmp_path: Path, monitor_first: bool) -> None:
    callbacks = [RunFiles(name="a"), PolicyMonitor(every_n_updates=3)]
    fit(
        Logs,
        callbacks[::-1] if monitor_first else callbacks,
        max_steps=8,
        limit_train_batches=8,
        limit_val_batches=1,
        accumulate_grad_batches=2,
        val_check_interval=4,
        num_sanity_val_steps=-1,
    )

    table = rows(tmp_path / "runs" / "a")
    assert [row["global_step"] for row in table] == list(range(9))
    assert all("hours" in row for row in table)
    assert [row.get("val_at") for row in table] == [0, None, 2, None, 4, None, 6, None, 8]
    # both micro-batches of the window count
    assert [row.get("micro_batch") for row in table] == [None, 0.5, 2.5, 4.5, 6.5, 0.5, 2.5, 4.5, 6.5]
    assert [row.get("per_epoch") for row in table] == [None] * 4 + [3.5] + [None] * 3 + [3.5]
    # values that another callback adds now and then stay in their own rows
    assert [n for n, row in enumerate(table) if "update/share_changed" in row] == [1, 3, 6]
    assert [row["learning_rate"] for row in table[1:]] == pytest.approx([0.1] * 4 + [0.01] * 4)
    with (tmp_path / "runs" / "a" / "metrics.csv").open() as file:
        assert file.readline().startswith("global_step,hours,device_hours,")


def test_a_partial_sanity_check_is_no_evaluation(fit: Fit, tmp_path: Path) -> None:
    fit(Logs, [RunFiles(name="a")], limit_val_batches=3, num_sanity_val_steps=1, val_check_interval=2)

    assert [row.get("val_at") for row in rows(tmp_path / "runs" / "a")] == [None, 2, None, 4]


def test_returned_metrics_are_taken_as_they_are(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [RunFiles(name="a"), PolicyMonitor()], accumulate_grad_batches=3)

    table = rows(tmp_path / "runs" / "a")
    assert [row["global_step"] for row in table] == [1, 2, 3, 4]
    assert all(row["entropy"] == 1.5 and "loss" in row and "grad_norm" in row for row in table)


def test_a_crash_leaves_every_finished_update(fit: Fit, foreign_policy: type, die_at: type, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fit(foreign_policy, [RunFiles(name="a"), PolicyMonitor(), die_at(3, ZeroDivisionError())])

    assert [row["global_step"] for row in rows(tmp_path / "runs" / "a")] == [1, 2, 3]
    assert (tmp_path / "runs" / "a" / "model" / "weights.pt").exists()


def test_a_model_that_cannot_be_saved_hides_no_error(
    fit: Fit, foreign_policy: type, die_at: type, tmp_path: Path
) -> None:
    class Unsaveable(foreign_policy):  # type: ignore[misc, valid-type]
        def save_model(self, folder):
            raise OSError("disk full")

    callbacks = [RunFiles(name="a"), RunRecord(), die_at(2, ZeroDivisionError())]
    with pytest.raises(ZeroDivisionError), pytest.warns(UserWarning, match="model/ is not written: disk full"):
        fit(Unsaveable, callbacks)

    assert '"status": "failed: ZeroDivisionError' in (tmp_path / "runs" / "a" / "run.json").read_text()


def test_a_module_that_logs_nothing_still_gets_a_row_per_update(fit: Fit, tmp_path: Path) -> None:
    fit(BoringModel, [RunFiles(name="a")], limit_val_batches=0, max_steps=3)

    assert [set(row) for row in rows(tmp_path / "runs" / "a")] == [{"global_step", "hours"}] * 3


def test_the_file_is_complete_up_to_the_open_row_at_any_time(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    """What a `kill -9` would leave behind."""
    seen = []

    class Look(Callback):
        def on_train_batch_end(self, trainer, *_):
            path = tmp_path / "runs" / "a" / "metrics.csv"
            seen.append([row["global_step"] for row in rows(path.parent)] if path.exists() else [])

    fit(foreign_policy, [RunFiles(name="a"), Look()])

    assert seen == [[], [1], [1, 2], [1, 2, 3]]


def test_a_resume_continues_the_rows(fit: Fit, foreign_policy: type, die_at: type, tmp_path: Path) -> None:
    def callbacks() -> list[Callback]:
        return [
            RunFiles(name="a"),
            PolicyMonitor(every_n_updates=2),
            ModelCheckpoint(every_n_train_steps=1, save_top_k=-1),
        ]

    with pytest.raises(ZeroDivisionError):
        fit(foreign_policy, [*callbacks(), die_at(5, ZeroDivisionError())], max_steps=6)
    folder = tmp_path / "runs" / "a"
    before = rows(folder)
    checkpoint = next((folder / "checkpoints").glob("*step=3.ckpt"))
    fit(
        foreign_policy,
        callbacks(),
        ckpt_path=checkpoint,
        max_steps=6,
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
    )

    table = rows(folder)
    assert [row["global_step"] for row in table] == [1, 2, 3, 4, 5, 6]
    assert table[:3] == before[:3]
    assert "drift/forward_kl" in table[3]
    assert [row["hours"] for row in table] == sorted(row["hours"] for row in table)
    assert [line.split(",")[0] for line in (folder / "metrics.csv.discarded").read_text().splitlines()] == [
        "global_step",
        "4",
        "5",
    ]


def test_an_evaluation_made_after_the_checkpoint_stays_in_the_row(fit: Fit, tmp_path: Path) -> None:
    def callbacks() -> list[Callback]:
        return [RunFiles(name="a"), ModelCheckpoint(every_n_train_steps=2, save_top_k=-1)]

    settings = {"limit_train_batches": 6, "limit_val_batches": 1, "val_check_interval": 2}
    fit(Logs, callbacks(), max_steps=3, **settings)
    folder = tmp_path / "runs" / "a"
    checkpoint = next((folder / "checkpoints").glob("*step=2.ckpt"))
    fit(
        Logs,
        callbacks(),
        ckpt_path=checkpoint,
        max_steps=4,
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
        **settings,
    )

    table = rows(folder)
    assert [(row["global_step"], row.get("val_at")) for row in table] == [(1, None), (2, 2), (3, None), (4, 4)]


def test_the_open_row_is_in_the_checkpoint_of_its_update(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(every_n_train_steps=2, dirpath=tmp_path / "kept")
    fit(foreign_policy, [RunFiles(name="a"), PolicyMonitor(), checkpoint], max_steps=2)

    state = torch.load(checkpoint.best_model_path, weights_only=True)["callbacks"]["RunFiles"]
    assert state["row"] == rows(tmp_path / "runs" / "a")[1]
    assert Path(checkpoint.best_model_path).parent == tmp_path / "kept"  # a dirpath that was set stays


def test_a_fork_of_a_run_has_a_folder_of_its_own(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [RunFiles(name="a"), ModelCheckpoint(every_n_train_steps=2)], max_steps=2)
    checkpoint = next((tmp_path / "runs" / "a" / "checkpoints").glob("*.ckpt"))
    fit(foreign_policy, [RunFiles(name="a")], ckpt_path=checkpoint, max_steps=4)

    assert [row["global_step"] for row in rows(tmp_path / "runs" / "a")] == [1, 2]
    assert [row["global_step"] for row in rows(tmp_path / "runs" / "a-2")] == [2, 3, 4]


def test_ctrl_c_keeps_the_model_and_says_how_to_go_on(
    fit: Fit, foreign_policy: type, die_at: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        fit(
            foreign_policy,
            [RunFiles(name="a"), die_at(3, KeyboardInterrupt()), ModelCheckpoint(every_n_train_steps=2)],
        )

    folder = tmp_path.resolve() / "runs" / "a"
    assert (folder / "model" / "weights.pt").exists()
    said = capsys.readouterr().out
    checkpoint = next((folder / "checkpoints").glob("*.ckpt"))
    assert re.search(rf'ckpt_path="{re.escape(str(checkpoint))}"', said)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/x/lit_rlhf/__main__.py", "python -m lit_rlhf fit --resume {folder}"),
        ("/bin/lit-rlhf", "lit-rlhf fit --resume {folder}"),
    ],
)
def test_the_command_to_resume_is_the_one_that_started_the_run(
    program: str,
    command: str,
    fit: Fit,
    foreign_policy: type,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", [program, "fit"])
    fit(foreign_policy, [RunFiles(name="a"), ModelCheckpoint(every_n_train_steps=2)])

    assert command.format(folder=tmp_path.resolve() / "runs" / "a") in capsys.readouterr().out


def test_evaluating_alone_makes_no_run_directory(tmp_path: Path) -> None:
    trainer = Trainer(
        callbacks=[RunFiles(name="a")], default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        accelerator="cpu", limit_val_batches=1, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.validate(Logs(), verbose=False)

    assert not (tmp_path / "runs").exists()
