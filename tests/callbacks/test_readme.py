"""The page is the contract: its example runs, and does what the page says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

import lit_rlhf_callbacks
from lit_rlhf_callbacks import PolicyMonitor, RunFiles, RunRecord

PAGE = Path(__file__).parents[2] / "callbacks" / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_module_of_ten_lines_is_measured(
    fit: Callable[..., tuple[Trainer, LightningModule]], foreign_lm: type, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"LightningModule": foreign_lm, "torch": torch}  # the rest of a project, as a base
    exec(next(block for block in blocks() if "class Policy" in block), names)

    class Whole(names["Policy"]):  # type: ignore[misc]
        def train_dataloader(self):
            ids = torch.randint(2, 20, (8, 2, 6))
            return DataLoader(
                [{"input_ids": row, "completion_mask": torch.ones_like(row).bool()} for row in ids], batch_size=None
            )

    fit(Whole, [RunFiles(name="a"), RunRecord(), PolicyMonitor(every_n_updates=1)], max_steps=3)

    header = (tmp_path / "runs" / "a" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"loss", "drift/forward_kl", "completions/mean_length", "tokens_per_second", "grad_norm"} <= set(header)


def test_the_callbacks_of_the_first_example_exist() -> None:
    names: dict[str, Any] = {}
    exec(blocks()[0], names)

    assert {"PolicyMonitor", "RunFiles", "RunRecord", "SamplePanel"} <= set(names)
    table = PAGE.read_text(encoding="utf-8").split("## What")[0]
    assert all(f"`{name}(" in table for name in lit_rlhf_callbacks.__all__ if name != "UserError")
