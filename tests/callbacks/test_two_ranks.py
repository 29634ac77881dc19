"""Two real processes over gloo, started the way a user starts them."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = """
import sys
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from lit_rlhf_callbacks import ExactResume, PolicyMonitor, RunFiles, RunRecord, SamplePanel
from lit_rlhf_callbacks.run_dir import assign_run_dir

class Bigrams(LightningModule):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(5, 5))

    def score(self, tokens):
        ids = tokens["input_ids"]
        return torch.nn.functional.pad(self.table.log_softmax(-1)[ids[:, :-1], ids[:, 1:]], (1, 0))

    def training_step(self, ids, batch_idx):
        length = 2 + 2 * self.global_rank  # rank 0 has completions of 2 tokens, rank 1 of 4; rank 0 has no other rows
        mask = torch.arange(6).ge(6 - length).expand(ids.shape)
        if self.global_rank == 0 and batch_idx % 2 == 1:
            return {"loss": self.table.sum() * 0, "metrics": {}, "tokens": {}}
        tokens = {"input_ids": ids, "completion_mask": mask}
        logps = self.score(tokens)
        loss = -(logps * mask).sum() * (1 + torch.rand(()))
        return {"loss": loss, "metrics": {}, "tokens": {**tokens, "logps": logps.detach()}}

    def generate(self, prompts, sampling, event):
        return [{**p, "completion": str(self.global_rank), "num_tokens": 1, "finish": "stop"} for p in prompts]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self):
        return DataLoader([torch.arange(12).view(2, 6) % 5] * 20, batch_size=None)  # so it needs no place to be saved

seed_everything(3)
torch.rand(int(__import__("os").environ.get("LOCAL_RANK", 0)) + 1)  # ranks whose random states differ
checkpoint = ModelCheckpoint(every_n_train_steps=2, save_top_k=-1, filename="{step}")
panel = SamplePanel(prompts=["a"], every_n_updates=2)
callbacks = [RunFiles(name="a"), RunRecord(), panel, PolicyMonitor(every_n_updates=2), ExactResume(), checkpoint]
trainer = Trainer(
    max_steps=4, accumulate_grad_batches=2, strategy="ddp", devices=2, accelerator="cpu", logger=False,
    callbacks=callbacks, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
)
module = Bigrams()
if len(sys.argv) > 1:
    assign_run_dir(trainer, resume_from="runs/a")
trainer.fit(module, ckpt_path=sys.argv[1] if len(sys.argv) > 1 else None)
if trainer.is_global_zero:
    torch.save(module.table.data, "resumed.pt" if len(sys.argv) > 1 else "whole.pt")
"""


@pytest.mark.ddp
def test_two_ranks_keep_one_record_and_resume_exactly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*arguments: str) -> None:
        command = [sys.executable, "script.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]

    run()
    folder = tmp_path / "runs" / "a"
    with (folder / "metrics.csv").open() as file:
        whole = list(csv.DictReader(file))
    assert [row["global_step"] for row in whole] == ["1", "2", "3", "4"]
    # per window: rank 0 has 2 completions of 2 tokens, rank 1 has 4 of 4
    assert {row["completions/mean_length"] for row in whole} == {repr(20 / 6)}
    assert {(row["completions/min_length"], row["completions/max_length"]) for row in whole} == {("2.0", "4.0")}
    assert all(float(row["device_hours"]) == pytest.approx(2 * float(row["hours"])) for row in whole)
    assert float(whole[3]["drift/forward_kl"]) > 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]

    checkpoint = folder / "checkpoints" / "step=2.ckpt"
    states = torch.load(checkpoint, weights_only=True)["lit_rlhf_rng"]
    assert len(states) == 2
    assert not torch.equal(states[0]["torch"], states[1]["torch"])

    run(str(checkpoint))
    assert torch.equal(torch.load(tmp_path / "whole.pt"), torch.load(tmp_path / "resumed.pt"))
    with (folder / "metrics.csv").open() as file:
        resumed = list(csv.DictReader(file))
    timed = {"hours", "device_hours", "tokens_per_second", "time/update", "time/evaluation", "time/checkpoint"}
    assert [{k: v for k, v in row.items() if k not in timed} for row in resumed] == [
        {k: v for k, v in row.items() if k not in timed} for row in whole
    ]
    lines = [json.loads(line) for line in (folder / "samples.jsonl").open()]
    assert [(line["step"], line["completion"]) for line in lines] == [(0, "0"), (2, "0"), (4, "0")]
    assert json.loads((folder / "run.json").read_text())["world_size"] == 2
