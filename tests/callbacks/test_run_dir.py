from pathlib import Path

import pytest
from lightning.pytorch import Callback, Trainer

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.run_dir import assign_run_dir, run_dir


def trainer_in(folder: Path, *callbacks: Callback) -> Trainer:
    return Trainer(
        default_root_dir=folder, logger=False, enable_checkpointing=False, accelerator="cpu", callbacks=list(callbacks)
    )


def test_a_second_run_of_a_name_gets_a_number_and_overwrites_nothing(tmp_path: Path) -> None:
    folders = [assign_run_dir(trainer_in(tmp_path), name="a") for _ in range(3)]

    assert folders == [tmp_path.resolve() / "runs" / name for name in ("a", "a-2", "a-3")]
    assert all(folder.is_dir() for folder in folders)


def test_the_first_call_decides(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path)

    assert assign_run_dir(trainer, name="a") == assign_run_dir(trainer, name="b") == run_dir(trainer)
    assert not (tmp_path / "runs" / "b").exists()


def test_without_a_name_it_is_the_time_and_a_label(tmp_path: Path) -> None:
    assert assign_run_dir(trainer_in(tmp_path), label="grpo").name.endswith("_grpo")


def test_whoever_asks_first_gets_the_configured_name(tmp_path: Path) -> None:
    class Named(Callback):
        run_name = "baseline"

    class Unnamed(Callback):
        run_name = None

    assert run_dir(trainer_in(tmp_path, Unnamed(), Named())).name == "baseline"


def test_resuming_goes_on_in_the_folder_given(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    trainer = trainer_in(tmp_path)

    assert assign_run_dir(trainer, resume_from=tmp_path / "old") == run_dir(trainer) == (tmp_path / "old").resolve()
    assert not (tmp_path / "runs").exists()


def test_resuming_from_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere") as error:
        assign_run_dir(trainer_in(tmp_path), resume_from=tmp_path / "nowhere")
    assert "\n" not in str(error.value)
