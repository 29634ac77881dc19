import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger

from lit_rlhf_callbacks import PolicyMonitor, RunRecord
from lit_rlhf_callbacks.run_dir import assign_run_dir

Fit = Callable[..., tuple[Trainer, LightningModule]]


def record(root: Path) -> dict:
    (path,) = root.glob("runs/*/run.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_finished_run(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [RunRecord(note="第一 run"), PolicyMonitor()])

    facts = record(tmp_path)
    assert facts["status"] == "finished"
    assert facts["note"] == "第一 run"
    assert facts["seed"] == 0
    assert facts["world_size"] == 1
    assert facts["global_step"] == 4
    assert facts["hardware"]["device"] == "cpu"
    assert {"python", "torch", "lightning"} <= set(facts["versions"])
    assert facts["run"] == {"algorithm": "by hand"}
    assert facts["data"] is None
    assert facts["final_metrics"]["entropy"] == 1.5
    assert facts["final_metrics"]["learning_rate"] == 0.5
    assert 0 < facts["hours"] == facts["device_hours"]
    assert facts["started"] <= facts["ended"]


def test_it_says_running_while_it_runs(fit: Fit, tmp_path: Path) -> None:
    """What a `kill -9` would leave behind."""
    seen = []

    class Look(Callback):
        def on_train_batch_end(self, *_):
            seen.append(record(tmp_path)["status"])

    fit(BoringModel, [RunRecord(), Look()], max_steps=1)

    assert seen == ["running"]


@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [
        (KeyboardInterrupt(), SystemExit, "interrupted"),
        (ValueError("bad row 7\nand a long explanation"), ValueError, "failed: ValueError: bad row 7"),
    ],
)
def test_how_a_run_broke_off(
    fit: Fit, die_at: type, tmp_path: Path, error: BaseException, raised: type[BaseException], status: str
) -> None:
    with pytest.raises(raised):
        fit(BoringModel, [RunRecord(), die_at(2, error)])

    facts = record(tmp_path)
    assert facts["status"] == status
    assert facts["global_step"] == 2
    assert facts["ended"] is not None


def test_a_failure_before_the_first_update_is_recorded_too(fit: Fit, tmp_path: Path) -> None:
    class NoData(BoringModel):
        def setup(self, stage):
            raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        fit(NoData, [RunRecord()])

    assert record(tmp_path)["status"] == "failed: ValueError: no data"


def test_a_resume_keeps_the_start_and_the_note_and_adds_hours(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [RunRecord(note="kept"), ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2)], max_steps=2)
    first = record(tmp_path)
    (checkpoint,) = tmp_path.glob("*.ckpt")
    (folder,) = tmp_path.glob("runs/*")
    fit(
        foreign_policy,
        [RunRecord()],
        ckpt_path=checkpoint,
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
    )

    facts = record(tmp_path)
    assert (facts["started"], facts["note"]) == (first["started"], "kept")
    assert [leg["global_step"] for leg in facts["resumed"]] == [2]
    assert facts["hours"] > first["hours"] / 2
    assert facts["status"] == "finished"


def test_loggers_are_named_with_their_place(fit: Fit, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="logs", version="v")
    fit(BoringModel, [RunRecord()], max_steps=1, logger=logger)

    assert record(tmp_path)["loggers"] == [{"name": "CSVLogger", "link": str(tmp_path / "logs" / "v")}]
