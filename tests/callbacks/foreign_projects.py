"""Projects as others write them, without lit_rlhf: around a model of Hugging Face's, and around plain torch ones."""

import json
import random
from pathlib import Path
from typing import Any

import numpy
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from lit_rlhf_callbacks import (
    ExactResume,
    LengthBucketing,
    MemoryReport,
    PolicyMonitor,
    RunDoctor,
    RunFiles,
    RunRecord,
    SamplePanel,
    SentinelEval,
)

QUESTIONS = [
    {"question": "a b c", "options": ["d", "z z"], "answer": 0},
    {"question": "x y", "options": ["z", "a", "b"], "answer": "A"},
    {"question": "k", "options": ["l", "m"], "answer": "l"},
]


class Chat(LightningModule):
    """Tiny Llama; dropout, and a loader that shuffles with the global noise, notice every random number drawn."""

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
        self.llm = LlamaForCausalLM(LlamaConfig(vocab_size=29, attention_dropout=0.1, **sizes, **ends)).train()
        self.tokenizer = tokenizer
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self.llm(**batch).loss
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.llm(**batch).loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def _loader(self, num: int, shuffle: bool) -> DataLoader:
        noise = torch.Generator().manual_seed(7)
        rows = [torch.randint(2, 29, (3 + row % 5,), generator=noise) for row in range(num)]
        return DataLoader([{"input_ids": row} for row in rows], batch_size=2, shuffle=shuffle, collate_fn=collate)

    def train_dataloader(self) -> DataLoader:
        return self._loader(16, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self._loader(2, shuffle=False)


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids = pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": ids.masked_fill(ids == 0, -100)}


class Boring(BoringModel):
    """Lightning's own, with its losses kept."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        outputs = super().training_step(batch, batch_idx)
        self.losses.append(outputs["loss"].item())
        self.log("train_loss", outputs["loss"])
        return outputs


class Plain(LightningModule):
    """A regression: nothing that any of the callbacks is about."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.layers(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self) -> DataLoader:
        rows = torch.utils.data.TensorDataset(torch.randn(12, 4, generator=torch.Generator().manual_seed(2)))
        return DataLoader(rows, batch_size=2, shuffle=True)


def every_callback(folder: Path) -> dict[str, Callback]:
    """Make one of each, in an order in which most need something that comes later."""
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    panel = SamplePanel(prompts=["ab", "c"], every_n_updates=2, max_new_tokens=3)
    sentinel = SentinelEval(sets=[str(questions)], every_n_updates=2)
    made = [RunDoctor(), panel, LengthBucketing(), RunRecord(), MemoryReport(), RunFiles(name="foreign"), sentinel]
    return {type(callback).__name__: callback for callback in [*made, PolicyMonitor(every_n_updates=2), ExactResume()]}


def train(module: type[LightningModule], callbacks: list[Callback], *args: Any, **settings: Any) -> dict[str, Any]:
    """Train from seed 5; return all that callbacks must not change, with the trainer and the module."""
    checkpoint = settings.pop("ckpt_path", None)
    seed_everything(5, verbose=False)
    defaults = {
        "max_steps": 6,
        "logger": False,
        "enable_checkpointing": any("Checkpoint" in type(callback).__name__ for callback in callbacks),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
    }
    trainer, made = Trainer(callbacks=callbacks, **{**defaults, **settings}), module(*args)
    trainer.fit(made, ckpt_path=checkpoint)
    return {
        "weights": [value.tolist() for value in made.state_dict().values()],
        "losses": getattr(made, "losses", None),
        "last_loss": float(trainer.callback_metrics.get("train_loss", 0)),
        "modes": [part.training for part in made.modules()],
        "random": [random.getstate(), torch.get_rng_state().tolist(), str(numpy.random.get_state())],
    }
