"""Two real processes over gloo: one record, a stop that both take part in, and no rank that waits for the other."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = """
import os
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from lit_rlhf_callbacks import RunDoctor, RunFiles
from lit_rlhf_callbacks.run_dir import assign_run_dir

class Line(LightningModule):
    breaks_at, breaks_on = 4, (1,)

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def training_step(self, batch, batch_idx):
        is_broken = self.global_step >= self.breaks_at and self.global_rank in self.breaks_on
        metrics = {"loss": float("nan") if is_broken else 0.1, "kl": 0.1}
        return {"loss": (self.weight * batch).sum(), "metrics": metrics, "tokens": self.tokens()}

    def tokens(self):
        return {}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self):
        return DataLoader([torch.full((3,), 0.1)] * 40, batch_size=None)

class Speaks(Line):
    breaks_on = (0, 1)

    def run_facts(self):
        return {"algorithm": "by hand", "stage": "rl"}

class Healthy(Speaks):
    breaks_at = 99

    def tokens(self):
        ids = torch.ones(2, 3, dtype=torch.long) + self.global_rank
        logps = torch.zeros(2, 3)
        weights = {"advantages": torch.tensor([1.0, -1.0]), "rewards": torch.tensor([1.0, 0.0])}
        return {"input_ids": ids, "completion_mask": ids > 0, "logps": logps, "ref_logps": logps + 0.1, **weights}

    def score(self, tokens):
        return tokens["logps"] + self.weight.sum()

class CannotScore(Healthy):
    def score(self, tokens):
        if self.global_rank == 1:
            raise RuntimeError("only here")
        return super().score(tokens)

    score_reference = score

class ShowsOddThings(Healthy):
    def tokens(self):
        return super().tokens() | ({"logps": torch.zeros(7), "prompt_ids": "text"} if self.global_rank == 1 else {})

class CannotSay(Healthy):
    def run_facts(self):
        if self.global_rank == 1:
            raise RuntimeError("nobody knows")
        return super().run_facts()

def train(name, module, doctors, block=None):
    seed_everything(1, verbose=False)
    trainer = Trainer(
        max_steps=12, strategy="ddp", devices=2, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, callbacks=[
            *doctors, RunFiles(name=name), ModelCheckpoint(every_n_train_steps=2, save_top_k=-1, filename="{step}")
        ],
    )
    if block is not None:
        folder = Path("runs", name).resolve()
        (folder / block).mkdir(parents=True, exist_ok=True)
        assign_run_dir(trainer, resume_from=folder)
    trainer.fit(module)
    stopped = doctors[0].stopped_by.kind if doctors and doctors[0].stopped_by else None
    return {"weight": module.weight.data.clone(), "step": trainer.global_step, "stopped": stopped}

NAN = {"not_a_number": "stop"}
results = {
    "line": train("line", Line(), [RunDoctor(on_finding="stop")]),
    "speaks": train("speaks", Speaks(), [RunDoctor(on_finding="stop")]),
    "scoreless": train("scoreless", CannotScore(), [RunDoctor(on_finding=NAN)]),
    "odd": train("odd", ShowsOddThings(), [RunDoctor(on_finding=NAN)]),
    "silent": train("silent", CannotSay(), [RunDoctor(on_finding=NAN)]),
    "unwritable": train("unwritable", Healthy(), [RunDoctor(on_finding=NAN)], block="checks.jsonl"),
    "unwritten": train("unwritten", Speaks(), [RunDoctor(on_finding="stop")], block="findings.jsonl"),
    "with": train("with", Healthy(), [RunDoctor()]),
    "without": train("without", Healthy(), []),
}
torch.save(results, f"{os.environ['LOCAL_RANK']}.pt")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have trained all cases."""
    where = tmp_path_factory.mktemp("ranks")
    (where / "script.py").write_text(SCRIPT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "NODE_RANK": "0"}
    processes = []
    for rank in ("0", "1"):
        own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": rank}
        with (where / f"{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "script.py"], cwd=where, env=os.environ | shared | own, stdout=log, stderr=log
                )
            )
    try:
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "".join((where / f"{rank}.log").read_text()[-3000:] for rank in (0, 1))
    return where


def ranks(folder: Path, case: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt")[case] for rank in (0, 1)]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.ddp
@pytest.mark.parametrize("case", ["line", "speaks"])
def test_both_ranks_stop_together(folder: Path, case: str) -> None:
    """The first is broken on rank 1 alone, the second on both."""
    both = ranks(folder, case)
    assert [rank["step"] for rank in both] == [6, 6]
    assert both[1]["stopped"] == "not_a_number"
    assert (folder / "runs" / case / "checkpoints" / "stopped-step=6.ckpt").exists()
    if case == "speaks":
        found = [each for each in lines(folder / "runs" / case / "findings.jsonl") if each["severity"] != "info"]
        assert [each["kind"] for each in found] == ["not_a_number"]
        assert found[0]["last_good_checkpoint"].endswith("step=4.ckpt")


@pytest.mark.ddp
@pytest.mark.parametrize("case", ["scoreless", "odd", "silent", "unwritable"])
def test_a_failure_on_one_rank_keeps_no_other_waiting(folder: Path, case: str) -> None:
    """A score that raises, tokens of an odd shape, facts that raise, a file that cannot be written."""
    assert [rank["step"] for rank in ranks(folder, case)] == [12, 12]


@pytest.mark.ddp
def test_a_rank_that_cannot_write_still_stops_with_the_other(folder: Path) -> None:
    assert [rank["step"] for rank in ranks(folder, "unwritten")] == [6, 6]


@pytest.mark.ddp
def test_what_one_rank_lacks_is_told(folder: Path) -> None:
    """Rank 1's words reach the file that rank 0 writes."""
    told = {each["name"]: each["status"] for each in lines(folder / "runs" / "odd" / "checks.jsonl") if "name" in each}
    assert (told["window"], told["ranks"]) == ("unknown", "ok")


@pytest.mark.ddp
def test_two_ranks_train_as_they_would_without_it(folder: Path) -> None:
    for mine, theirs in zip(ranks(folder, "with"), ranks(folder, "without"), strict=True):
        assert torch.equal(mine["weight"], theirs["weight"])
