import csv
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lit_rlhf.__main__ import main
from lit_rlhf_callbacks import UserError


def run_dir(folder: Path, num_rows: int, *, break_at: int = 10**9, reward: float = 0.5) -> Path:
    """A run directory with metrics.csv only; from an update on the loss is not a number."""
    rng = random.Random(0)
    folder.mkdir()
    with (folder / "metrics.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["global_step", "hours", "loss", "reward", "reward_std", "entropy"])
        for step in range(1, num_rows + 1):
            loss = float("nan") if step >= break_at else rng.gauss(0, 0.1)
            table.writerow([step, 0.01 * step, loss, rng.gauss(reward, 0.05), rng.gauss(0.4, 0.02), rng.gauss(1, 0.02)])
    return folder


def diagnose(*args: str | Path) -> None:
    main(["doctor", *map(str, args)])


def test_a_run_without_the_callback_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_dir(tmp_path / "run", 60, break_at=41)
    (folder / "config.yaml").write_text(
        "model:\n  class_path: lit_rlhf.GRPO\n  init_args:\n    beta: 0.04\n"
        "    optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 0.5}}\ntrainer: {max_steps: 60}\n"
    )
    (folder / "checkpoints").mkdir()
    for step in (20, 40, 60):
        (folder / "checkpoints" / f"latest-step={step}.ckpt").touch()
    diagnose(folder)
    said = capsys.readouterr().out

    assert "60 rows, updates 1 to 60, GRPO" in said
    assert "update 41: CRITICAL" in said
    assert "(not_a_number)" in said
    assert "latest-step=40.ckpt" in said
    assert "lr: 0.5 →" in said
    assert "no RunDoctor" in said


def test_silence_says_what_was_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnose(run_dir(tmp_path / "run", 60))
    said = capsys.readouterr().out
    assert "No finding." in said
    assert "looked at: " in said
    assert 10 <= int(re.search(r"policy (\d+) rows", said)[1]) <= 60
    assert "kl_explosion (no drift/forward_kl, kl)" in said
    assert "too few rows" not in said

    diagnose(run_dir(tmp_path / "short", 20))
    assert "too few rows" in capsys.readouterr().out


def test_the_status_is_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = run_dir(tmp_path / "broken", 20, break_at=10)
    diagnose(broken)
    for severity in ("warn", "critical"):
        with pytest.raises(SystemExit) as stop:
            diagnose(broken, "--fail-on", severity)
        assert stop.value.code == 3
    diagnose(run_dir(tmp_path / "healthy", 60), "--fail-on", "warn")


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnose(run_dir(tmp_path / "run", 20, break_at=10), "--json")
    record = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["raised"]) for each in record["findings"] if each["severity"] != "info"] == [
        ("not_a_number", 10)
    ]
    assert record["num_rows"] == 20
    assert sum(record["armed"].values()) > 0


def test_a_log_of_another_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(1)
    history = [
        {"step": 10 * row, "reward": rng.gauss(0.1, 0.02), "frac_reward_zero_std": 1.0, "loss": 0.0, "grad_norm": 0.0}
        for row in range(1, 31)
    ]
    state = tmp_path / "checkpoint-300" / "trainer_state.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"max_steps": 300, "log_history": history}))
    diagnose("--log", state)
    by_file = capsys.readouterr().out
    assert "zero_contrast" in by_file
    assert "settings are unknown" in by_file
    diagnose(state.parent)  # the folder that holds it
    assert capsys.readouterr().out == by_file


def test_what_is_missing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        diagnose(tmp_path)
    assert stop.value.code == 2
    assert "there is no metrics.csv" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        diagnose()
    assert stop.value.code == 2


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom lit_rlhf.__main__ import main\n"
        "try:\n    main(['doctor', '--help'])\nexcept SystemExit:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
    assert "--fail-on" in done.stdout


def test_errors_are_ours(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("global_step,loss\n1,2\nx,3\n")
    from lit_rlhf_callbacks.run_log import read_run_dir

    with pytest.raises(UserError, match="line 3"):
        read_run_dir(tmp_path)
