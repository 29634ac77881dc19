"""The README's Python is run and its commands exist: what stands there works as written."""

import re
from pathlib import Path

import pytest

from lit_rlhf.commands import COMMANDS

README = (Path(__file__).parent.parent / "README.md").read_text()
ROOT = Path(__file__).parent.parent


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_ten_lines_of_python_train_and_leave_a_run(in_tmp_dir):
    code = next(block for block in blocks("python") if "GRPO(" in block)
    assert len(code.strip().splitlines()) <= 12
    scope = {}
    exec(code, scope)
    assert scope["trainer"].global_step == 3
    run = next(Path("runs").iterdir())
    assert (run / "metrics.csv").is_file()
    assert (run / "samples.jsonl").is_file()


def test_an_own_reward_in_the_current_folder_is_found_and_logged(in_tmp_dir):
    from lit_rlhf.cli import main

    code = next(block for block in blocks("python") if block.startswith("# my_rewards.py"))
    Path("my_rewards.py").write_text(code)
    command = next(line for block in blocks("bash") for line in block.splitlines() if "my_rewards" in line)
    rewards = re.search(r"'(.*)'", command).group(1)
    small = ["--trainer.max_steps", "1", "--data.prompts_per_phase", "2", "--data.num_eval", "2"]
    quiet = ["--trainer.enable_progress_bar", "false"]
    main(["fit", "--config", "grpo", "--model.rewards", rewards, *small, *quiet])
    header = next(Path("runs").glob("*/metrics.csv")).read_text().splitlines()[0]
    assert "rewards/brevity/mean" in header


@pytest.mark.parametrize(
    "line", [line for block in blocks("bash") for line in block.splitlines() if "lit_rlhf " in line]
)
def test_every_command_and_file_of_the_readme_exists(line):
    command = re.search(r"python -m lit_rlhf (\w+)", line)
    if command:
        assert command.group(1) in COMMANDS
    for config in re.findall(r"configs/[\w/]+\.yaml", line):
        assert (ROOT / config).is_file()


def test_every_linked_file_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
