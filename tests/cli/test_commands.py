import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from lit_rlhf.__main__ import main
from lit_rlhf.commands import COMMANDS


def seconds(*command):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def test_help_is_a_table_of_commands_before_anything_is_imported():
    took, text = min(seconds("-m", "lit_rlhf", "--help") for _ in range(3))
    assert took < 1
    assert all(f"  {name} " in text and command.summary in text for name, command in COMMANDS.items())
    imported = "import sys; from lit_rlhf.__main__ import main; main(['--help']); print('torch' in sys.modules)"
    assert seconds("-c", imported)[1].endswith("False\n")


def test_fit_help_costs_little_more_than_lightning():
    base = "import lightning.pytorch.cli, peft"
    ratios = (seconds("-m", "lit_rlhf", "fit", "--help")[0] / seconds("-c", base)[0] for _ in range(3))
    assert any(ratio < 1.5 for ratio in ratios)  # the machine may be busy with something else meanwhile


def test_every_command_has_a_main():
    for command in COMMANDS.values():
        assert callable(import_module(command.module).main)


@pytest.mark.parametrize(("name", "hint"), [("fti", "did you mean fit?"), ("xyz", "there are: fit, ")])
def test_an_unknown_command(name, hint, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name])
    assert stop.value.code == 2
    assert f"no command {name}; {hint}" in capsys.readouterr().err


def test_classes_in_the_current_folder_are_found(in_tmp_dir, monkeypatch, capsys):
    (in_tmp_dir / "my_data.py").write_text("from lit_rlhf import PromptData\nclass MyData(PromptData): pass\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(in_tmp_dir))])
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", "grpo", "--data", "my_data.MyData", "--print_config"])
    assert stop.value.code == 0
    assert "class_path: my_data.MyData" in capsys.readouterr().out


def test_ctrl_c_ends_a_run_without_a_traceback(small_config):
    line = [sys.executable, "-m", "lit_rlhf", "fit", "--config", small_config, "--name", "stopped"]
    run = subprocess.Popen(
        [*line, "--trainer.max_steps", "100000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 60
    while not list(Path("runs/stopped/checkpoints").glob("*.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.1)
    told = ""
    for _ in range(4):  # torch swallows an interrupt that falls into the writing of a checkpoint: press again
        os.kill(run.pid, signal.SIGINT)
        try:
            told, _ = run.communicate(timeout=40)
            break
        except subprocess.TimeoutExpired:
            continue
    assert run.returncode == 130
    assert "Traceback" not in told
    assert "To resume it: python -m lit_rlhf fit --resume" in told
    assert Path("runs/stopped/model/config.json").is_file()
