import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

from lit_rlhf_callbacks import MemoryReport, RunFiles
from lit_rlhf_callbacks.memory_meter import Meter, resident_bytes, tensor_bytes
from lit_rlhf_callbacks.memory_plan import crowding, first_knob

Fit = Callable[..., tuple[Trainer, LightningModule]]
GIB = 2**30


@pytest.fixture
def adam_lm(foreign_lm: type) -> type[LightningModule]:
    class AdamLM(foreign_lm):  # type: ignore[misc, valid-type]
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return AdamLM


@pytest.mark.parametrize(
    ("settings", "size"), [({}, 4), ({"precision": "bf16-true"}, 2), ({"precision": "bf16-mixed"}, 4)]
)
def test_static_parts_are_what_is_allocated(fit: Fit, adam_lm: type, settings: dict[str, Any], size: int) -> None:
    _, module = fit(adam_lm, [report := MemoryReport()], **settings)

    num_weights = sum(p.numel() for p in module.parameters())
    counters = 4 * len(list(module.parameters()))  # Adam's step of each tensor
    buffers = sum(b.nbytes for b in module.buffers())
    assert report.predicted["weights"] == report.predicted["gradients"] == size * num_weights
    assert report.predicted["optimiser"] == 2 * size * num_weights
    assert report.measured["static"] == 4 * size * num_weights + counters + buffers


def test_a_table_at_the_first_update_and_at_the_end(
    fit: Fit, adam_lm: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(adam_lm, [MemoryReport(), RunFiles(name="a")], accumulate_grad_batches=2, max_steps=3)

    shown = capsys.readouterr().out
    assert [line.strip() for line in shown.splitlines() if "memory, update" in line] == [
        "memory, update 1",
        "memory, update 3",
    ]
    assert "Largest micro-batch: 3 × 6 tokens" in shown
    assert "resident memory of the process" in shown
    with (tmp_path / "runs" / "a" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert all(float(row["memory/peak_gib"]) >= float(row["memory/static_gib"]) > 0 for row in rows)
    assert all(float(row["memory/predicted_gib"]) > 0 for row in rows)


def test_any_module_gets_its_static_part(fit: Fit, capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    with caplog.at_level("INFO"):
        fit(BoringModel, [report := MemoryReport()])

    assert report.predicted == {"weights": 4 * 66, "gradients": 4 * 66}  # SGD without momentum keeps nothing
    assert report.measured["static"] == 2 * 4 * 66
    (said,) = [message for message in caplog.messages if "MemoryReport" in message]
    assert "activations could not be predicted" in said


def test_training_does_not_notice(fit: Fit, adam_lm: type) -> None:
    _, watched = fit(adam_lm, [MemoryReport()])
    with_report = torch.get_rng_state()
    _, alone = fit(adam_lm, [])

    assert torch.equal(with_report, torch.get_rng_state())
    assert all(map(torch.equal, watched.parameters(), alone.parameters()))


def test_the_largest_micro_batch_counts(fit: Fit, adam_lm: type) -> None:
    class Uneven(adam_lm):  # type: ignore[misc, valid-type]
        def train_dataloader(self):
            ids = [torch.full((rows, length), 5) for rows, length in [(2, 4), (3, 9), (1, 20), (2, 3)]]
            batches = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]
            return torch.utils.data.DataLoader(batches, batch_size=None)

    fit(Uneven, [report := MemoryReport()])

    assert report._largest == (3, 9, False)


def test_resident_memory_sees_what_is_touched() -> None:
    meter = Meter(torch.device("cpu"), start_bytes=1000)
    before = meter.now()
    block = torch.ones(2**25)  # 128 MiB
    assert meter.now() - before > 0.9 * block.nbytes
    del block
    assert meter.peak() - before > 0.9 * 2**27
    assert resident_bytes() > 10**7


def test_views_share_their_storage() -> None:
    whole = torch.zeros(10)
    assert tensor_bytes([whole, whole[:5], whole.view(2, 5)]) == 40


def test_who_else_is_on_the_device() -> None:
    assert crowding(free=79 * GIB, total=80 * GIB, own=0, predicted=20 * GIB) == []
    (shared,) = crowding(free=40 * GIB, total=80 * GIB, own=10 * GIB, predicted=20 * GIB)
    assert "another process holds about 29 GiB" in shared
    (small,) = crowding(free=15 * GIB, total=16 * GIB, own=0, predicted=20 * GIB)
    assert "15.0 GiB are free for this run, and it is predicted to need 20.0 GiB" in small


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"weights": 2, "gradients": 2, "optimiser": 4, "activations": 7}, "LoRA"),
        ({"weights": 2, "frozen weights": 9, "activations": 7}, "reference"),
        ({"weights": 2, "logits": 9, "activations": 7}, "fewer tokens"),
        ({"weights": 2, "activations": 7}, "then gradient checkpointing"),
    ],
)
def test_the_largest_part_is_turned_first(parts: dict[str, int], expected: str) -> None:
    assert expected in first_knob(parts, checkpointing=False)
    assert "checkpointing" not in first_knob(parts, checkpointing=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_peak_on_a_gpu(fit: Fit, adam_lm: type) -> None:
    fit(adam_lm, [report := MemoryReport()], accelerator="gpu")

    assert report.measured["static"] <= report.measured["peak"]
    assert report.measured["activations"] > 0
