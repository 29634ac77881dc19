"""Modules that have never heard of lit_rlhf, and a way to train them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))  # for what several test files share

from letters import VOCABULARY, letter_tokenizer


class ForeignLM(LightningModule):
    """An ordinary project around a Hugging Face model; its dropout makes it sensitive to random states."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            attention_dropout=0.1,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
        self.model = LlamaForCausalLM(config).train()
        self.tokenizer = letter_tokenizer()

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self.model(**batch).loss
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.model(**batch).loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def _batches(self, num: int) -> DataLoader:
        ids = torch.randint(1, len(VOCABULARY), (num, 3, 6), generator=torch.Generator().manual_seed(7))
        rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]
        return DataLoader(rows, batch_size=None)

    def train_dataloader(self) -> DataLoader:
        return self._batches(12)

    def val_dataloader(self) -> DataLoader:
        return self._batches(2)


class ForeignPolicy(LightningModule):
    """The protocol of callbacks/README.md, by hand, around a bigram model: row b of the table scores what follows b."""

    def __init__(self, with_reference: bool = False) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(5, 5))
        self.start = torch.zeros(5, 5)
        self.with_reference = with_reference
        self.events: list[int] = []

    def score(self, tokens: dict[str, Tensor]) -> Tensor:
        ids = tokens["input_ids"]
        return torch.nn.functional.pad(self.table.log_softmax(-1)[ids[:, :-1], ids[:, 1:]], (1, 0))

    def training_step(self, ids: Tensor, batch_idx: int) -> dict[str, Any]:
        tokens = {"input_ids": ids, "completion_mask": torch.arange(ids.shape[1]).ge(2).expand(ids.shape)}
        logps = self.score(tokens)
        loss = -(logps * tokens["completion_mask"]).sum() / tokens["completion_mask"].sum()
        shown = tokens | {"logps": logps.detach(), "advantages": torch.tensor([1.0, 0.0])}
        if self.with_reference:
            start = self.start.log_softmax(-1)[ids[:, :-1], ids[:, 1:]]
            shown["ref_logps"] = shown["old_logps"] = torch.nn.functional.pad(start, (1, 0))
        is_last = (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0
        metrics = {"loss": loss.item(), "entropy": 1.5} if is_last else {}
        self.log_dict(metrics)
        return {"loss": loss, "metrics": metrics, "tokens": shown}

    def generate(self, prompts: list[Any], sampling: dict[str, Any], event: int) -> list[dict[str, Any]]:
        self.events.append(event)
        torch.rand(3)
        text = {"completion": "\x1b[31m[b]x[/b]\n", "num_tokens": 3, "finish": "stop", "rewards": {"length": 0.5}}
        return [{"prompt_id": p["prompt_id"], "prompt": str(p["prompt"]), **text} for p in prompts]

    def panel_prompts(self, num: int) -> list[Any]:
        return [{"prompt": f"prompt {i}", "prompt_id": 10 + i} for i in range(num)]

    def run_facts(self) -> dict[str, Any]:
        return {"algorithm": "by hand"}

    def save_model(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), folder / "weights.pt")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def train_dataloader(self) -> DataLoader:
        ids = torch.randint(5, (12, 2, 6), generator=torch.Generator().manual_seed(1))
        return DataLoader(list(ids), batch_size=None)


class DieAt(Callback):
    """Raise when an update has been made and every callback before this one has seen it."""

    def __init__(self, step: int, error: BaseException) -> None:
        self.step, self.error = step, error

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise self.error


@pytest.fixture
def foreign_lm() -> type[LightningModule]:
    return ForeignLM


@pytest.fixture
def foreign_policy() -> type[LightningModule]:
    return ForeignPolicy


@pytest.fixture
def die_at() -> type[Callback]:
    return DieAt


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., tuple[Trainer, LightningModule]]:
    """Train a module from seed 0 and return the trainer and the module."""

    def run(
        make: Callable[[], LightningModule],
        callbacks: list[Callback],
        ckpt_path: Path | None = None,
        before_fit: Callable[[Trainer], object] = lambda trainer: None,
        **settings: Any,
    ) -> tuple[Trainer, LightningModule]:
        seed_everything(0, verbose=False)
        module = make()
        defaults = {
            "max_steps": 4,
            "logger": False,
            "enable_checkpointing": any("Checkpoint" in type(callback).__name__ for callback in callbacks),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "accelerator": "cpu",
            "devices": 1,
            "default_root_dir": tmp_path,
        }
        trainer = Trainer(callbacks=callbacks, **{**defaults, **settings})
        before_fit(trainer)
        trainer.fit(module, ckpt_path=ckpt_path)
        return trainer, module

    return run
