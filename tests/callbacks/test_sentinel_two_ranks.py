"""Two processes share the options out, get the same numbers as one, and stop together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader
from lit_rlhf_callbacks import RunFiles, SentinelEval
import lit_rlhf_callbacks.sentinel_scoring as scoring

scoring.MAX_TOKENS = 7  # several forwards, so that both ranks have some

class Digits:
    eos_token_id = chat_template = None
    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [int(c) for c in text if c.isdigit()]}

class Bigrams(LightningModule):
    tokenizer = Digits()

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(3 * torch.eye(10).roll(1, 1))  # n + 1 follows n

    def score(self, tokens):
        ids = tokens["input_ids"]
        return torch.nn.functional.pad(self.table.log_softmax(-1)[ids[:, :-1], ids[:, 1:]], (1, 0))

    def training_step(self, batch, batch_idx):
        return {"loss": self.table.square().sum(), "metrics": {}, "tokens": {}}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        return DataLoader(torch.zeros(40, 1), batch_size=1)

    def sentinel_sets(self):
        rows = [{"question": str(n), "options": [str(n + 1), str((n + k) % 10)], "answer": 0}
                for n in range(9) for k in (2, 3, 4, 5)]
        return {"count": rows}

class Scramble(Callback):
    def on_train_batch_start(self, trainer, pl_module, *_):
        if trainer.global_step == 3:
            pl_module.table.data.neg_()

num_ranks = int(sys.argv[1])
trainer = Trainer(
    max_steps=8, strategy="ddp" if num_ranks > 1 else "auto", devices=num_ranks, accelerator="cpu", logger=False,
    callbacks=[Scramble(), SentinelEval(every_n_updates=2), RunFiles(name=f"of_{num_ranks}")],
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
trainer.fit(Bigrams())
"""


@pytest.mark.ddp
def test_two_ranks_measure_what_one_does_and_stop_together(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def lines(num_ranks: int) -> list[dict[str, object]]:
        command = [sys.executable, "script.py", str(num_ranks)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode != 0
        assert "broken, not its recipe weak: by update 4 count went from 1.000 to 0.000 (-6.0 σ" in done.stderr
        file = tmp_path / "runs" / f"of_{num_ranks}" / "sentinels.jsonl"
        return [{key: value for key, value in json.loads(line).items() if key != "hours"} for line in file.open()]

    of_one, of_two = lines(1), lines(2)
    assert of_one == of_two
    assert [(line["step"], line["accuracy"]) for line in of_two] == [(0, 1.0), (2, 1.0), (4, 0.0)]
