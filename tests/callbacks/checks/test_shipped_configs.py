"""Every shipped YAML with the checks on: three updates in which each check holds, or says what it lacks."""

import json
from pathlib import Path

import pytest
import yaml

from lit_rlhf.cli import main

CONFIGS = Path(__file__).parents[3] / "configs"
HOLD = {"trainable": 0, "held_out_prompts": 0, "update_reaches_weights": 3, "update_direction": 3}
UNKNOWN = {
    "grpo_smollm2": {"update_reaches_weights", "update_direction"},  # its task is beyond the embedded model: no reward
    "process_reward": {"update_direction"},  # its labels are of steps, not of rows
}


def train(config):
    """Run a config for three updates on the embedded model and data, and return what its doctor checked."""
    is_online = yaml.safe_load(config.read_text())["data"]["class_path"] == "PromptData"
    size = [] if is_online else ["--data.limit", "200"]
    short = ["--trainer.max_steps", "3", "--trainer.enable_progress_bar", "false", "--data.num_eval", "4"]
    main(["fit", "--config", str(config), "--model.model", "builtin:tiny", *short, *size])
    lines = next(Path("runs").glob("*/checks.jsonl")).read_text().splitlines()
    return [line for line in map(json.loads, lines) if "status" in line]


@pytest.mark.slow
@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_check_fails(config):
    results = train(config)
    assert [f"{line['name']}: {line['summary']}" for line in results if line["status"] == "failed"] == []
    held = {line["name"] for line in results if line["status"] == "ok" and line["step"] == HOLD.get(line["name"])}
    assert held == HOLD.keys() - UNKNOWN.get(config.stem, set())
