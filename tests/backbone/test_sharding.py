"""Sharded over ranks with FSDP2, a backbone computes what it computes unsharded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lit_rlhf.backbone import Backbone, LoRA, weight_hash

HERE = Path(__file__).parent
CASES = [
    {"architecture": "llama", "reference": "copy", "lora": None, "recompute": True, "max_logits": 256},
    {
        "architecture": "gpt2",
        "reference": "copy",
        "lora": None,
        "recompute": False,
        "max_logits": 2**24,
    },  # tied embedding and head
    {"architecture": "llama", "reference": "adapter_off", "lora": {"r": 2}, "recompute": False, "max_logits": 2**24},
]


def run_ranks(cases: list[dict], rows, out: Path, world_size: int) -> list[list[dict]]:
    """Run the worker once per rank; return what each rank saw of each case."""
    torch.save(tuple(rows), out / "rows.pt")
    arguments = json.dumps({"cases": cases, "out": str(out), "world_size": world_size})
    ranks = [
        subprocess.Popen([sys.executable, HERE / "shard_worker.py", arguments, str(rank)], stderr=subprocess.PIPE)
        for rank in range(world_size)
    ]
    errors = [rank.communicate(timeout=300)[1].decode() for rank in ranks]
    for rank, error in zip(ranks, errors, strict=True):
        assert rank.returncode == 0, error
    return [torch.load(out / f"seen{rank}.pt") for rank in range(world_size)]


def interleave(parts: list[Tensor]) -> Tensor:
    """Undo ``rows[rank::world_size]``."""
    whole = parts[0].new_zeros(sum(map(len, parts)), *parts[0].shape[1:])
    for rank, part in enumerate(parts):
        whole[rank :: len(parts)] = part
    return whole


def check_case(case: dict, seen: list[dict], rows) -> None:
    """Do unsharded what the worker did sharded, and compare."""
    torch.manual_seed(0)
    lora = LoRA(**case["lora"]) if case["lora"] else None
    backbone = Backbone(case["folder"], reference=case["reference"], lora=lora)
    backbone.load()
    optimizer = torch.optim.SGD([weight for weight in backbone.parameters() if weight.requires_grad], lr=0.01)

    def check(name: str, expected: Tensor) -> None:
        torch.testing.assert_close(interleave([rank[name] for rank in seen]), expected, atol=1e-5, rtol=1e-5)

    start = scores = backbone.score_tokens(*rows).logps.detach()
    for name in ("before", "reference", "reference_after", "reloaded"):
        check(name, start)
    for step in range(2):
        backbone.score_tokens(*rows, temperature=0.7).logps.sum().backward()
        for name, weight in backbone.named_parameters():
            if weight.requires_grad:
                weight.grad /= len(seen)  # FSDP2 takes the mean over ranks
                for rank in seen:
                    torch.testing.assert_close(rank[f"grads{step}"][name], weight.grad, atol=1e-4, rtol=1e-4)
        optimizer.step()
        optimizer.zero_grad()
        before, scores = scores, backbone.score_tokens(*rows).logps.detach()
        assert not torch.allclose(scores, before, atol=1e-3)  # so that stale weights would show
        check(f"after{step}", scores)
        all_logps = interleave([rank[f"next{step}"] for rank in seen])
        next_logps = all_logps.gather(-1, rows.input_ids[:, 4, None]).squeeze(-1)
        torch.testing.assert_close(next_logps, scores[:, 4], atol=1e-5, rtol=0)

    assert seen[0]["names"] == sorted(backbone.state_dict())
    saved = Backbone(case["saved"])
    saved.load()
    torch.testing.assert_close(saved.score_tokens(*rows).logps, scores, atol=1e-5, rtol=0)
    assert len({rank["hash"] for rank in seen}) == 1
    if lora is None:
        assert saved.start_hash == seen[0]["hash"] != weight_hash(backbone.reference)


@pytest.mark.ddp
@pytest.mark.parametrize("world_size", [1, 2])
def test_sharded_equals_unsharded(make_folder, make_rows, tmp_path, world_size):
    rows = make_rows(
        [[5, 6, 7, 8, 9, 2], [10, 11, 12, 13, 2], [20, 21, 22, 23, 24, 25, 26, 2], [30, 31, 32, 33, 34, 2]]
    )
    cases = [
        {**case, "folder": make_folder(case["architecture"], scale=3.0), "saved": str(tmp_path / f"saved{i}")}
        for i, case in enumerate(CASES)
    ]
    seen = run_ranks(cases, rows, tmp_path, world_size)
    for case, of_ranks in zip(cases, zip(*seen, strict=True), strict=True):
        check_case(case, list(of_ranks), rows)


@pytest.mark.ddp
def test_lightning_trains_and_resumes_a_sharded_backbone(make_folder, rows, tmp_path):
    cases = [
        {"folder": make_folder(scale=3.0), "reference": "copy", "lora": None, "distributed_checkpoint": False},
        {"folder": make_folder(scale=3.0), "reference": "copy", "lora": None, "distributed_checkpoint": True},
        {"folder": make_folder("gpt2"), "reference": "adapter_off", "lora": {"r": 2}, "distributed_checkpoint": False},
    ]
    torch.save(tuple(rows), tmp_path / "rows.pt")
    arguments = json.dumps({"cases": cases, "out": str(tmp_path)})
    done = subprocess.run([sys.executable, HERE / "fit_worker.py", arguments], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    for case, seen in zip(cases, torch.load(tmp_path / "seen.pt"), strict=True):
        start = Backbone(case["folder"])
        start.load()
        expected = start.score_tokens(*rows).logps
        (first, _), *_, (last, _) = seen["straight"]
        torch.testing.assert_close(first, expected, atol=1e-5, rtol=0)
        assert (last - first).abs().max() > 0.01
        for _, reference in seen["straight"] + seen["resumed"]:
            torch.testing.assert_close(reference, expected, atol=1e-5, rtol=0)
        for (resumed, _), (straight, _) in zip(seen["resumed"], seen["straight"][1:], strict=True):
            assert torch.equal(resumed, straight)
