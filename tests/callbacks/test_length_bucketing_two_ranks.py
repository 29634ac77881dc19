"""Two processes over gloo, of which one runs out of memory in its forward."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from length_bucketing_runs import lengths

SCRIPT = """
import json, os
import torch
from lightning.pytorch import Trainer, seed_everything
from length_bucketing_runs import Later, Memory, Project, lengths
from lit_rlhf_callbacks import LengthBucketing

rank = int(os.environ["LOCAL_RANK"])
for place in ("plenty", "forward", "backward"):  # the last one ends the run
    seed_everything(0)
    memory = Later(after=2, **{place: 90}) if rank == 1 and place != "plenty" else Memory()
    callback = LengthBucketing(max_tokens=120)
    trainer = Trainer(
        max_epochs=2, accumulate_grad_batches=2, strategy="ddp", devices=2, accelerator="cpu", logger=False,
        callbacks=[callback], enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )
    module = Project(lengths(31), memory)
    trainer.fit(module)
    sampler = type(trainer.train_dataloader.batch_sampler).__name__
    facts = {"seen": module.seen, "failures": memory.failures, "sampler": sampler, "limit": callback.limit.max_tokens,
             "num_split": float(trainer.callback_metrics["padding/num_split"])}
    with open(f"{place}-{rank}.json", "w") as file:
        json.dump(facts, file)
    torch.save([p.detach() for p in module.parameters()], f"{place}-{rank}.pt")
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, subprocess.CompletedProcess[str]]":
    """Start the processes once for all runs."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "script.py"]
    return folder, subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.ddp
def test_a_rank_that_splits_keeps_step_with_one_that_does_not(
    finished: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    folder, done = finished
    assert (folder / "forward-1.json").exists(), done.stderr[-3000:]
    facts = {name: json.loads((folder / f"{name}.json").read_text()) for name in _names()}
    whole, other = facts["plenty-0"], facts["plenty-1"]

    assert len(whole["seen"]) == len(other["seen"])
    assert whole["sampler"] == "BucketSampler"  # Lightning has not put one of its own around it
    half = len(whole["seen"]) // 2
    for epoch in (slice(half), slice(half, None)):
        rows = [row for rank in (whole, other) for batch in rank["seen"][epoch] for row in batch]
        assert set(rows) == set(range(31))
        assert len(rows) - 31 <= 1  # at most one row is repeated to make the ranks even
    assert whole["seen"][:half] != whole["seen"][half:]
    sizes = lengths(31)
    assert max(len(b) * max(sizes[row] for row in b) for rank in (whole, other) for b in rank["seen"]) <= 120

    assert facts["forward-1"]["failures"]
    assert facts["forward-0"]["failures"] == []
    assert facts["forward-0"]["limit"] == facts["forward-1"]["limit"] is not None
    assert facts["forward-0"]["num_split"] == facts["forward-1"]["num_split"]
    assert [facts[f"forward-{rank}"]["seen"] for rank in (0, 1)] == [whole["seen"], other["seen"]]
    weights = {name: torch.load(folder / f"{name}.pt") for name in _names()}
    for a, b in zip(weights["forward-0"], weights["forward-1"], strict=True):
        assert torch.equal(a, b)
    for split, plain in zip(weights["forward-0"], weights["plenty-0"], strict=True):
        assert (split - plain).abs().max() < 1e-5


@pytest.mark.ddp
def test_a_rank_whose_backward_fails_stops_the_run_with_advice(
    finished: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    folder, done = finished
    assert done.returncode != 0
    assert "out of memory in the backward" in done.stderr
    assert "the other ranks wait for this one's gradients; set LengthBucketing(max_tokens=" in done.stderr
    assert list(folder.glob("*.ckpt")) == []


def _names() -> list[str]:
    return [f"{place}-{rank}" for place in ("plenty", "forward") for rank in (0, 1)]
