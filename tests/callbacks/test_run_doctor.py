import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from lit_rlhf_callbacks import PolicyMonitor, RunDoctor, RunFiles, RunRecord, UserError
from lit_rlhf_callbacks.replay import replay
from lit_rlhf_callbacks.run_dir import assign_run_dir
from lit_rlhf_callbacks.run_log import read_run_dir
from lit_rlhf_callbacks.stop_reason import stop_reason

Fit = Callable[..., tuple[Trainer, LightningModule]]


class Scripted(BoringModel):
    """Returns the metrics it is told to; breaks at an update if asked."""

    def __init__(self, nan_at: int = 10**9) -> None:
        super().__init__()
        self.nan_at = nan_at

    def training_step(self, batch, batch_idx):
        is_last = (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0
        value = math.nan if self.global_step + 1 >= self.nan_at else 0.5
        reward = 0.1 * (self.global_step % 3)
        return {"loss": self.step(batch), "metrics": {"loss": value, "reward": reward} if is_last else {}}

    def run_facts(self) -> dict[str, Any]:
        return {"algorithm": "Scripted", "stage": "rl", "stop_ids": [2]}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def broken_from(step: int) -> Callable[[], LightningModule]:
    return lambda: Scripted(nan_at=step)


def told(folder: Path) -> list[tuple[str, int, str]]:
    found = [line for line in lines(folder / "findings.jsonl") if line["severity"] != "info"]
    return [(line["kind"], line["raised"], line["state"]) for line in found]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_it_says_what_is_wrong_one_update_later(
    fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str], accumulate: int
) -> None:
    doctor = RunDoctor()
    settings = {"max_steps": 8, "accumulate_grad_batches": accumulate, "limit_train_batches": 24}
    fit(broken_from(5), [doctor, RunFiles(name="a")], **settings)

    folder = tmp_path / "runs" / "a"
    assert told(folder) == [("not_a_number", 5, "open")]
    finding = lines(folder / "findings.jsonl")[0]
    assert (finding["severity"], finding["basis"], finding["onset"]) == ("critical", "exact", [5, 5])
    assert finding["hours"] >= 0
    printed = capsys.readouterr().out
    assert "RunDoctor, update 5: CRITICAL" in printed
    assert "docs/handbook.md#not-a-number" in printed
    facts = lines(folder / "checks.jsonl")[0]["facts"]
    assert facts["algorithm"] == "Scripted"
    assert facts["trainer.accumulate_grad_batches"] == accumulate
    assert facts["optimizer.lr"] == 0.1


def test_the_command_finds_what_the_callback_found(fit: Fit, tmp_path: Path) -> None:
    """Rows and checks replayed give the same findings, number for number, wherever callbacks stand in the list."""
    doctor = RunDoctor()
    callbacks = [doctor, RunFiles(name="a"), PolicyMonitor(every_n_updates=2)]
    fit(broken_from(5), callbacks, max_steps=8, limit_train_batches=24, accumulate_grad_batches=3, val_check_interval=6)

    diagnosis, changes = replay(read_run_dir(tmp_path / "runs" / "a"))
    assert diagnosis.findings == doctor.diagnosis.findings
    assert len(changes) == len(lines(tmp_path / "runs" / "a" / "findings.jsonl")) > 0
    mine, theirs = doctor.diagnosis.history.state(), diagnosis.history.state()
    assert json.dumps(mine, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    assert "grad_norm" in mine["series"]  # of the callback that comes later in the list


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_same_weights_with_and_without(fit: Fit, foreign_policy: type[LightningModule], precision: str) -> None:
    def weights(callbacks: list) -> torch.Tensor:
        _, module = fit(lambda: foreign_policy(with_reference=True), callbacks, max_steps=6, precision=precision)
        return module.table.data

    assert torch.equal(weights([RunDoctor(), PolicyMonitor()]), weights([PolicyMonitor()]))


def test_boring_modules_are_declined_in_one_line(fit: Fit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fit(BoringModel, [doctor := RunDoctor()], max_steps=8)
    said = [record.message for record in caplog.records if "RunDoctor" in record.message]
    assert said == ["RunDoctor could not be checked: this module shows no metrics. See callbacks/README.md."]
    assert [each for each in doctor.diagnosis.findings.values() if each.severity != "info"] == []


def test_it_stops_after_saving_and_says_where_to_go_on(fit: Fit, tmp_path: Path) -> None:
    doctor = RunDoctor(on_finding={"not_a_number": "stop"})
    checkpoint = ModelCheckpoint(every_n_train_steps=2, save_top_k=-1, filename="{step}")
    trainer, _ = fit(
        broken_from(5), [doctor, RunFiles(name="a"), RunRecord(), checkpoint], max_steps=20, limit_train_batches=20
    )

    folder = tmp_path / "runs" / "a"
    assert trainer.global_step == 6  # the update under way when row 5 was complete
    assert doctor.stopped_by.kind == "not_a_number"
    good = str(folder / "checkpoints" / "step=4.ckpt")
    assert doctor.stopped_by.last_good_checkpoint == good
    assert good in stop_reason(trainer)
    assert json.loads((folder / "run.json").read_text())["status"].startswith("stopped by RunDoctor at update 6")
    saved = torch.load(folder / "checkpoints" / "stopped-step=6.ckpt", weights_only=True)
    assert saved["global_step"] == 6
    assert [state["row"]["global_step"] for name, state in saved["callbacks"].items() if "RunFiles" in name] == [6]


def test_only_what_is_critical_stops(fit: Fit, foreign_policy: type[LightningModule]) -> None:
    trainer, _ = fit(foreign_policy, [RunDoctor(on_finding="stop")], max_steps=4)
    assert trainer.global_step == 4
    assert stop_reason(trainer) is None


def test_ignored_kinds_are_not_heard_of(fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(broken_from(2), [RunDoctor(on_finding={"not_a_number": "ignore"}), RunFiles(name="a")], max_steps=5)
    assert "NaN" not in capsys.readouterr().out
    assert told(tmp_path / "runs" / "a") == []


def test_a_resume_keeps_findings_moves_lines_aside_and_begins_new_baselines(fit: Fit, tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(every_n_train_steps=4, save_top_k=-1, filename="{step}")
    fit(broken_from(3), [RunDoctor(), RunFiles(name="a"), checkpoint], max_steps=7, limit_train_batches=30)
    folder = tmp_path / "runs" / "a"
    with (folder / "findings.jsonl").open("a") as file:
        file.write(
            json.dumps({"kind": "from_later", "raised": 7, "state": "open", "severity": "warn", "step": 7}) + "\n"
        )

    again = RunDoctor()
    fit(
        broken_from(10**9),
        [again, RunFiles(name="a"), ModelCheckpoint(every_n_train_steps=4, save_top_k=-1, filename="{step}")],
        max_steps=30,
        limit_train_batches=30,
        ckpt_path=folder / "checkpoints" / "step=4.ckpt",
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
    )
    assert again.diagnosis.history.anchored_at == 4
    assert again.diagnosis.history.before["reward"] == [0.0, 0.1, 0.2, 0.0]
    assert again.diagnosis.history["reward"].count == 26
    assert told(folder) == [("not_a_number", 3, "open"), ("not_a_number", 3, "recovered")]
    assert lines(folder / "findings.jsonl.discarded")[-1]["kind"] == "from_later"
    assert [line["step"] for line in lines(folder / "checks.jsonl") if "facts" in line] == [0, 4]
    diagnosis, _ = replay(read_run_dir(folder))
    assert diagnosis.findings["not_a_number"].state == "recovered"
    assert diagnosis.history["reward"].state() == again.diagnosis.history["reward"].state()
    assert diagnosis.history.before["reward"] == again.diagnosis.history.before["reward"]


class Bombs(BoringModel):
    """Shows things that no rule and no check expects."""

    def training_step(self, batch, batch_idx):
        return {"loss": self.step(batch), "metrics": {"reward": 1.0}, "tokens": {"input_ids": "text", "rewards": 3}}

    def run_facts(self) -> dict[str, Any]:
        raise RuntimeError("nobody knows")


def test_it_never_breaks_training(fit: Fit) -> None:
    with pytest.warns(UserWarning, match="RunDoctor"):
        trainer, _ = fit(Bombs, [RunDoctor()], max_steps=4)
    assert trainer.global_step == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_finding": {"entropy_colapse": "stop"}}, "no kind of finding is called 'entropy_colapse'; did you mean"),
        ({"on_finding": "halt"}, "'halt' is no action"),
        ({"hook": "ftp://somewhere"}, "ftp:// is not supported"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RunDoctor(**settings)


def test_a_torch_without_kernels_for_this_gpu_is_told_before_anything_runs_on_it(tmp_path: Path, monkeypatch) -> None:
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, default_root_dir=tmp_path)
    monkeypatch.setattr(type(trainer.strategy), "root_device", property(lambda self: torch.device("cuda", 0)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    with pytest.warns(UserWarning, match="no kernels for sm_61"):
        RunDoctor().setup(trainer, BoringModel(), "fit")
