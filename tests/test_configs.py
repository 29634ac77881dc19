"""Every shipped YAML trains: two updates of each, those for a GPU with the embedded model put over them."""

import csv
from pathlib import Path

import pytest
import yaml

from lit_rlhf.cli import main

CONFIGS = Path(__file__).parent.parent / "configs"
LAPTOP = sorted(path for path in CONFIGS.glob("*.yaml"))
GPU = sorted(path for path in (CONFIGS / "gpu").glob("*.yaml"))
SMALL = ["--data.num_eval", "4", "--trainer.max_steps", "2"]
ANYWHERE = ["--trainer.accelerator", "cpu", "--trainer.devices", "1", "--trainer.precision", "32-true"]
EMBEDDED = ["--model.model", "builtin:tiny"]


def read(config):
    return yaml.safe_load(config.read_text())


def monitored(config):
    """Return the metric that decides which checkpoint is the best."""
    callbacks = [entry for entry in read(config)["trainer"]["callbacks"] if entry["class_path"] == "ModelCheckpoint"]
    (metric,) = [entry["init_args"]["monitor"] for entry in callbacks if "monitor" in entry["init_args"]]
    return metric


def train(config, *flags):
    """Run a config for two updates and return the rows of its metrics.csv."""
    is_online = read(config)["data"]["class_path"] == "PromptData"
    size = ["--data.prompts_per_phase", "4"] if is_online else ["--data.limit", "16", "--data.examples_per_update", "4"]
    quiet = ["--trainer.enable_progress_bar", "false"]
    command = main(["fit", "--config", str(config), *SMALL, *size, *ANYWHERE, *quiet, *flags])
    assert command.trainer.global_step == 2
    with next(Path("runs").glob("*/metrics.csv")).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("config", LAPTOP, ids=lambda path: path.stem)
def test_laptop_config_trains(config, in_tmp_dir):
    rows = train(config, *EMBEDDED)
    assert [row["global_step"] for row in rows] == ["0", "1", "2"]
    assert rows[0][monitored(config)] != ""
    assert float(rows[1]["grad_norm"]) >= 0
    assert (next(Path("runs").iterdir()) / "model" / "config.json").is_file()


@pytest.mark.parametrize("config", GPU, ids=lambda path: path.stem)
def test_gpu_config_trains_with_the_embedded_model(config, in_tmp_dir):
    pytest.importorskip("reasoning_gym", reason="the extra 'tasks' is not installed")
    rows = train(config, *EMBEDDED, "--data.options", "{size: 40, seed: 0}", "--model.sampling.max_new_tokens", "16")
    assert [row["global_step"] for row in rows] == ["0", "1", "2"]


@pytest.mark.parametrize("config", LAPTOP + GPU, ids=lambda path: path.stem)
def test_config_is_short_keeps_its_best_checkpoint_and_can_be_resumed(config):
    text = config.read_text()
    assert len(text.splitlines()) <= 50
    entries = read(config)["trainer"]["callbacks"]
    assert monitored(config).startswith("eval/")
    assert any("every_n_train_steps" in entry.get("init_args", {}) for entry in entries)
    assert {"class_path": "ExactResume"} in entries
