"""Ranks of a sharded policy leave generation together: a rank that left early would leave the others hanging."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lit_rlhf.rollout import NativeSampler, NoiseKey, Sampling

WORKER = Path(__file__).parent / "lockstep_worker.py"


@pytest.mark.ddp
@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_ranks_of_a_sharded_policy_leave_together(folder, backbone, prompts, tmp_path):
    splits = [4, len(prompts), 0]  # uneven, second rank without prompts, first rank without prompts
    setup = {"folder": str(folder), "out": str(tmp_path), "prompts": [asdict(p) for p in prompts], "splits": splits}
    ranks = [
        subprocess.Popen([sys.executable, WORKER, json.dumps(setup), str(rank)], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=300)[1].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, error in zip(ranks, errors, strict=True):
        assert rank.returncode == 0, error
    expected = NativeSampler(backbone).generate(prompts, 2, Sampling(max_new_tokens=10), NoiseKey(0, "train", 0))
    for first, second in zip(
        *(json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in (0, 1)), strict=True
    ):
        made = first["completions"] + second["completions"]
        assert [c["ids"] for c in made] == [c.ids for c in expected]
        assert [c["prompt_id"] for c in made] == [c.prompt_id for c in expected]
        assert first["num_forwards"] == second["num_forwards"]
