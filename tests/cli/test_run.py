import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.strategies import StrategyRegistry

from lit_rlhf import GRPO
from lit_rlhf.cli import FSDP2Strategy, main
from lit_rlhf.cli.progress import UpdateProgressBar
from lit_rlhf_callbacks.errors import UserError


def saved_config(folder="runs/first"):
    return yaml.safe_load(Path(folder, "config.yaml").read_text())


def num_updates(folder="runs/first"):
    with open(Path(folder, "metrics.csv"), newline="") as file:
        return int(list(csv.DictReader(file))[-1]["global_step"])


def test_a_run_keeps_its_config_its_name_and_its_note(small_config):
    cli = main(["fit", "--config", small_config, "--name", "first", "--note", "a try"])
    assert cli.trainer.global_step == 1
    config = saved_config()
    assert config["model"]["class_path"] == "lit_rlhf.GRPO"
    assert config["trainer"]["callbacks"][0]["class_path"] == "lit_rlhf_callbacks.RunFiles"
    assert config["note"] == "a try"
    assert not {"resume", "debug", "ckpt_path"} & set(config)
    assert '"note": "a try"' in Path("runs/first/run.json").read_text()


def test_a_second_run_gets_its_own_folder_and_a_saved_config_runs_again(small_config):
    main(["fit", "--config", small_config, "--name", "first"])
    main(["fit", "--config", "runs/first/config.yaml"])
    assert saved_config("runs/first-2") == saved_config("runs/first")


def test_without_callbacks_a_run_still_keeps_its_config(small_config):
    main(["fit", "--config", small_config, "--trainer.callbacks", "null", "--name", "bare"])
    assert saved_config("runs/bare")["model"]["init_args"]["group_size"] == 2


def test_validate_leaves_no_run_folder_behind(small_config):
    main(["validate", "--config", small_config])
    assert not Path("runs").exists()


def test_the_config_is_the_truth_on_a_resume(small_config):
    main(["fit", "--config", small_config, "--name", "first"])
    [checkpoint] = Path("runs/first/checkpoints").glob("*.ckpt")
    flags = ["--trainer.max_steps", "2", "--model.beta", "0.5", "--model.optimizer.lr", "1e-3"]
    cli = main(["fit", "--config", small_config, "--ckpt_path", str(checkpoint), "--name", "second", *flags])
    assert cli.trainer.global_step == 2
    assert cli.model.beta == 0.5
    assert cli.trainer.optimizers[0].param_groups[0]["lr"] == 1e-3
    assert saved_config("runs/second")["model"]["init_args"]["beta"] == 0.5


def test_a_resume_goes_on_in_place(small_config):
    main(["fit", "--config", small_config, "--name", "first"])
    before = Path("runs/first/config.yaml").read_text()
    cli = main(["fit", "--resume", "runs/first", "--trainer.max_steps", "3", "--model.optimizer.lr", "1e-3"])
    assert [path.name for path in Path("runs").iterdir()] == ["first"]
    assert num_updates() == 3
    assert cli.trainer.optimizers[0].param_groups[0]["lr"] == 1e-3
    assert saved_config()["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 1e-3
    assert Path("runs/first/config.1.yaml").read_text() == before


def test_a_resume_with_nothing_changed_keeps_one_config(small_config):
    main(["fit", "--config", small_config, "--name", "first"])
    main(["fit", "--resume", "runs/first"])
    assert [path.name for path in Path("runs/first").glob("config*.yaml")] == ["config.yaml"]


def test_the_config_reaches_the_logger(small_config):
    main(["fit", "--config", small_config, "--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "logs"])
    [hparams] = Path("logs").rglob("hparams.yaml")
    assert yaml.safe_load(hparams.read_text())["config"]["model"]["init_args"]["group_size"] == 2


def test_print_config_is_a_config_that_can_be_used(small_config, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", "grpo", "--print_config"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["model"]["init_args"]["group_size"] == 8
    Path("printed.yaml").write_text(printed)
    main(["fit", "--config", "printed.yaml", "--config", small_config])


def test_help_says_what_a_setting_means(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--model.help", "GRPO"])
    assert "Completions per prompt." in capsys.readouterr().out


@pytest.fixture
def _no_process_group_left():
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_no_process_group_left")
def test_fsdp2_is_a_strategy_name_and_runs_on_one_process(small_config):
    assert isinstance(StrategyRegistry.get("fsdp2"), FSDP2Strategy)
    cli = main(["fit", "--config", small_config, "--trainer.strategy", "fsdp2", "--name", "sharded"])
    assert cli.trainer.global_step == 1
    assert cli.model.backbone.is_sharded


def test_a_wrong_combination_is_one_line(small_config):
    flags = ["--trainer.val_check_interval", "3", "--trainer.accumulate_grad_batches", "2"]
    with pytest.raises(UserError, match="val_check_interval"):
        main(["fit", "--config", small_config, *flags])


def test_a_missing_checkpoint_is_one_line(small_config):
    with pytest.raises(UserError, match=r"ckpt_path: no checkpoint no/such\.ckpt"):
        main(["fit", "--config", small_config, "--ckpt_path", "no/such.ckpt"])


def test_a_checkpoint_rebuilds_its_module_without_the_config(small_config):
    main(["fit", "--config", small_config, "--name", "first", "--model.beta", "0.25"])
    [checkpoint] = Path("runs/first/checkpoints").glob("*.ckpt")
    model = GRPO.load_from_checkpoint(checkpoint)
    assert (model.beta, model.group_size, model.sampling.max_new_tokens) == (0.25, 2, 4)


def test_the_bar_counts_updates_and_a_bar_of_the_config_comes_first(small_config):
    flags = ["fit", "--config", small_config, "--trainer.enable_progress_bar", "true"]
    bar = main(flags).trainer.progress_bar_callback
    assert isinstance(bar, UpdateProgressBar)
    assert (bar.train_progress_bar.completed, bar.train_progress_bar.total) == (1, 1)
    assert isinstance(
        main([*flags, "--trainer.callbacks", "TQDMProgressBar"]).trainer.progress_bar_callback, TQDMProgressBar
    )


def command(*args):
    line = [sys.executable, "-m", "lit_rlhf", *args]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_what_the_user_can_put_right_is_one_line_and_status_2(in_tmp_dir):
    done = command("fit", "--config", "grpo", "--model.group_sise", "3")
    line = "lit_rlhf: model.init_args.group_sise: no such setting of GRPO; did you mean group_size?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_debug_shows_everything(in_tmp_dir):
    done = command("fit", "--config", "grpo", "--model.group_sise", "3", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "Does not validate against any of the Union subtypes" in done.stderr


def test_the_terminal_is_calm(small_config):
    done = command("fit", "--config", small_config, "--name", "calm")
    assert done.returncode == 0, done.stderr
    told = (done.stdout + done.stderr).splitlines()
    expected = ("Seed set", "GPU available", "each phase", "`Trainer.fit` stopped", "The run is in", "To resume it")
    assert [line for line in told if line.strip() and not line.startswith(expected)] == []
