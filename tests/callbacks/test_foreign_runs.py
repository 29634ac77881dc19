"""What all callbacks together leave behind in a project written without lit_rlhf, on a resume and on two ranks, too."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_projects import Chat, every_callback, train
from letters import letter_tokenizer
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from lit_rlhf_callbacks import PolicyMonitor

TIMED = {"hours", "device_hours", "tokens_per_second", "padding/tokens_per_second"}
TIMED |= {"time/update", "time/evaluation", "time/checkpoint"}
MEMORY = {"memory/peak_gib", "memory/activations_gib"}  # of the whole test process


def test_any_order_gives_the_same_files(tmp_path: Path) -> None:
    found = []
    for order in (1, -1):
        folder = tmp_path / str(order)
        folder.mkdir()
        result = train(
            Chat, list(every_callback(folder).values())[::order], letter_tokenizer(), default_root_dir=folder
        )
        found.append((result, _files(folder / "runs" / "foreign")))
    assert found[0] == found[1]
    assert {"metrics.csv", "run.json", "samples.jsonl", "sentinels.jsonl", "checks.jsonl"} <= set(found[0][1])
    assert len(found[0][1]["metrics.csv"]) == 7  # the untrained model was asked, too


def _files(folder: Path) -> dict[str, Any]:
    """Read a run directory, without what depends on the hour and on the machine's load."""
    with (folder / "metrics.csv").open() as file:
        rows = [{k: v for k, v in row.items() if k not in TIMED | MEMORY} for row in csv.DictReader(file)]
    record = json.loads((folder / "run.json").read_text())
    found: dict[str, Any] = {"metrics.csv": rows, "run.json": sorted(record["final_metrics"])}
    for path in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.open()]
        found[path.name] = [{k: v for k, v in line.items() if k not in TIMED | {"cost"}} for line in lines]
    return found


class Logging(Chat):
    """Logs by names that callbacks would use, too: not always, and from several places."""

    names = ("grad_norm", "learning_rate", "hours", "kl", "update/share_changed", "memory/peak_gib", "padding/waste")

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        if batch_idx % 3 == 0:
            self.log_dict(dict.fromkeys(self.names, 42.0))
        return super().training_step(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        self.log("tokens_per_second", 42.0)


def test_names_that_a_project_logs_stay_its_own(tmp_path: Path) -> None:
    class Watching(Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % 8:  # of an epoch's first batch nothing is known yet
                assert {trainer.callback_metrics[name].item() for name in Logging.names} == {42.0}

    callbacks = [Watching(), *every_callback(tmp_path).values()]
    train(Logging, callbacks, letter_tokenizer(), max_steps=12, default_root_dir=tmp_path)
    with (tmp_path / "runs" / "foreign" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["global_step"] != "0"]
    assert {row[name] for row in rows for name in Logging.names if name != "hours"} == {"42.0"}


def test_a_logger_changes_nothing_and_gets_the_metrics(tmp_path: Path) -> None:
    others = [each for name, each in every_callback(tmp_path).items() if name != "LengthBucketing"]
    settings = {"logger": CSVLogger(tmp_path, name="", version=""), "log_every_n_steps": 1}
    result = train(Chat, others, letter_tokenizer(), **settings, default_root_dir=tmp_path)
    assert result == train(Chat, [], letter_tokenizer(), default_root_dir=tmp_path)
    with (tmp_path / "metrics.csv").open() as file:
        assert {"train_loss", "grad_norm", "drift/forward_kl"} <= set(next(csv.reader(file)))


def test_metrics_reach_other_callbacks_the_same_way_with_a_logger_and_without(tmp_path: Path) -> None:
    class Watching(Callback):
        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            values = trainer.callback_metrics.items()
            self.rows.append({name: value.item() for name, value in values if name not in TIMED | MEMORY})
            self.names = set(trainer.logged_metrics)

    seen = []
    for logger in (False, CSVLogger(tmp_path, name="", version="")):
        watching, best = Watching(), ModelCheckpoint(tmp_path / str(bool(logger)), monitor="grad_norm")
        train(Chat, [PolicyMonitor(2), watching, best], logger=logger, max_steps=6)
        seen.append((watching.rows, watching.names, best.best_model_score))
    assert seen[0] == seen[1]
    assert seen[0][2] is not None
    assert {"grad_norm", "drift/forward_kl", "learning_rate"} <= set(seen[0][0][-1])


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    """In the midst of an epoch, where LengthBucketing's loader knows its place."""
    saving = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    outcomes = []
    for checkpoint in (None, tmp_path / "step=3.ckpt"):
        made = list(every_callback(tmp_path).values())
        callbacks = [*made, saving] if checkpoint is None else made
        outcome = train(Chat, callbacks, letter_tokenizer(), ckpt_path=checkpoint, default_root_dir=tmp_path)
        outcome["losses"] = outcome["losses"][-3:]
        outcomes.append(outcome)
    whole, resumed = outcomes
    assert resumed == whole
    with (tmp_path / "runs" / "foreign-2" / "metrics.csv").open() as file:
        resumed_rows = [row["global_step"] for row in csv.DictReader(file)]
    assert resumed_rows == ["3", "4", "5", "6"]


ISOLATED = """
import sys
import lightning.pytorch  # its torchmetrics takes transformers where that is installed
for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
    del sys.modules[name]
sys.modules["lit_rlhf"] = sys.modules["transformers"] = None
from pathlib import Path
from foreign_projects import Plain, every_callback, train
train(Plain, list(every_callback(Path(".")).values()), max_steps=4)
"""


def _run(code: str, folder: Path) -> None:
    (folder / "script.py").write_text(code)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def test_neither_lit_rlhf_nor_transformers_is_needed(tmp_path: Path) -> None:
    _run(ISOLATED, tmp_path)
    assert (tmp_path / "runs" / "foreign" / "metrics.csv").read_text().count("\n") == 5


TWO_RANKS = """
from pathlib import Path
from letters import letter_tokenizer
from foreign_projects import Boring, Chat, every_callback, train

def run(module, chosen, *args):
    made = every_callback(Path("."))
    return train(module, [made[name] for name in chosen], *args, strategy="ddp", devices=2, max_steps=4)

names = sorted(every_callback(Path(".")))
rest = [name for name in names if name != "LengthBucketing"]
tokenizer = letter_tokenizer()
assert run(Boring, names) == run(Boring, [])
assert run(Chat, rest, tokenizer) == run(Chat, [], tokenizer)
bucketed = run(Chat, ["LengthBucketing"], tokenizer)
assert run(Chat, names, tokenizer) == bucketed
assert len(bucketed["losses"]) == 4

if __import__("os").environ.get("LOCAL_RANK") == "1":
    Path("rank-1-agrees").touch()
"""


@pytest.mark.ddp
def test_two_ranks(tmp_path: Path) -> None:
    """Each rank holds its own weights, losses and random states against those without the callbacks."""
    _run(TWO_RANKS, tmp_path)
    assert (tmp_path / "runs" / "foreign-3" / "metrics.csv").read_text().count("\n") == 6
    assert not list((tmp_path / "runs").glob("*-4"))
    assert (tmp_path / "rank-1-agrees").exists()
