"""A table of reference log-probs is that of the rows being scored, whatever the trainer is doing."""

import json
import math

import pytest
from lightning.pytorch import Callback, Trainer

from lit_rlhf.algorithms import DPO
from lit_rlhf.data import PreferenceData


class EvalLosses(Callback):
    def __init__(self):
        self.seen = []

    def on_validation_end(self, trainer, pl_module):
        self.seen.append(float(trainer.callback_metrics["eval/preference_loss"]))


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LIT_RLHF_CACHE", str(tmp_path / "cache"))
    for name, word in (("train", "say"), ("eval", "tell")):
        rows = [{"prompt": f"{word} " + "ab" * n, "chosen": word * (n + 1), "rejected": "no"} for n in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return PreferenceData(train=str(tmp_path / "train.jsonl"), eval=str(tmp_path / "eval.jsonl"))


def trainer(losses):
    return Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=1,
        num_sanity_val_steps=1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[losses],
    )


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_the_loss_before_the_first_update_is_ln_2(data, command):
    losses = EvalLosses()
    getattr(trainer(losses), command)(DPO(reference="precomputed"), datamodule=data)
    before_updates = losses.seen[:2]  # of fit: Lightning's sanity check, then our evaluation
    assert len(before_updates) == (2 if command == "fit" else 1)
    assert before_updates == pytest.approx([math.log(2)] * len(before_updates), abs=1e-5)
