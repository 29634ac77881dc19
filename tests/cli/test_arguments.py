from pathlib import Path

import pytest
import torch

from lit_rlhf.cli.arguments import SHIPPED, find_config, last_checkpoint, read_arguments, shipped_configs
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture
def run_folder(in_tmp_dir):
    folder = in_tmp_dir / "runs" / "first"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text("seed_everything: 1")
    for name, step in (("epoch=0-step=9.ckpt", 9), ("last.ckpt", 30), ("step=30.ckpt", 30), ("best.ckpt", 20)):
        torch.save({"global_step": step}, folder / "checkpoints" / name)
    return Path("runs/first")


@pytest.mark.parametrize("name", ["grpo", "grpo.yaml", "configs/grpo.yaml", "configs/grpo"])
def test_a_shipped_config_is_found_by_name(in_tmp_dir, name):
    assert find_config(name) == SHIPPED / "grpo.yaml"


def test_a_file_here_comes_first(in_tmp_dir):
    Path("configs").mkdir()
    Path("configs/grpo.yaml").write_text("seed_everything: 1")
    assert find_config("configs/grpo.yaml") == Path("configs/grpo.yaml")
    assert find_config("grpo") == SHIPPED / "grpo.yaml"


def test_configs_in_subfolders_ship_too(in_tmp_dir):
    assert "gpu/grpo_qwen3" in shipped_configs()
    assert find_config("configs/gpu/grpo_qwen3.yaml").is_file()


@pytest.mark.parametrize("args", [["--config", "grpo"], ["--config=grpo"], ["-c", "grpo"]])
def test_every_way_to_name_a_config(args):
    assert str(SHIPPED / "grpo.yaml") in read_arguments(["fit", *args]).args


@pytest.mark.parametrize(
    ("name", "message"),
    [("gpro", "--config gpro: no such file, .* did you mean grpo?"), ("no/such.yaml", "there are: .*grpo")],
)
def test_a_missing_config_says_which_there_are(in_tmp_dir, name, message):
    with pytest.raises(UserError, match=message):
        find_config(name)


def test_broken_yaml_is_named_by_file_and_line(in_tmp_dir):
    Path("broken.yaml").write_text("model:\n  class_path: GRPO\n - beta: 1\n")
    with pytest.raises(UserError, match=r"broken.yaml:3: no valid YAML"):
        find_config("broken.yaml")


@pytest.mark.parametrize("flag", ["--config", "--resume"])
def test_a_flag_without_its_value(flag):
    with pytest.raises(UserError, match=f"{flag}: give a"):
        read_arguments(["fit", flag])


def test_a_resume_takes_the_runs_own_config_then_later_flags(run_folder):
    args, resume_from = read_arguments(["fit", "--model.beta", "0.5", "--resume", str(run_folder)])
    assert resume_from == run_folder
    assert args == [
        *("fit", "--config", str(run_folder / "config.yaml"), "--model.beta", "0.5"),
        *("--ckpt_path", str(run_folder / "checkpoints" / "last.ckpt")),
    ]


def test_a_resume_from_a_checkpoint_of_choice(run_folder):
    args, _ = read_arguments(["fit", "--resume", str(run_folder), "--ckpt_path=runs/first/checkpoints/best.ckpt"])
    assert [arg for arg in args if "ckpt" in arg] == ["--ckpt_path=runs/first/checkpoints/best.ckpt"]


def test_the_last_checkpoint_is_the_one_with_most_updates_whatever_its_name_or_time(run_folder):
    (run_folder / "checkpoints" / "last.ckpt").unlink()
    torch.save({"global_step": 10}, run_folder / "checkpoints" / "zz.ckpt")
    assert last_checkpoint(run_folder).name == "step=30.ckpt"


def test_a_sharded_checkpoint_is_a_folder(run_folder):
    folder = run_folder / "checkpoints" / "step=40.ckpt"
    folder.mkdir()
    torch.save({"global_step": 40}, folder / "meta.pt")
    assert last_checkpoint(run_folder) == folder


def test_nothing_to_resume(run_folder):
    for path in (run_folder / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"no checkpoint in .* start again with --config runs/first/config\.yaml"):
        read_arguments(["fit", "--resume", str(run_folder)])
    with pytest.raises(UserError, match=r"no config\.yaml there"):
        read_arguments(["fit", "--resume", "runs"])
