"""Ranks of a sharded policy leave generation together: a rank that left early would leave the others hanging."""

import multiprocessing

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from lit_rlhf.rollout import NativeSampler, NoiseKey, Sampling

SAMPLING, KEY = Sampling(max_new_tokens=10), NoiseKey(0, "train", 0)


def generate_on_one_rank(rank, rendezvous, backbone, prompts, rows_read, results):
    torch.set_num_threads(1)  # the parent's thread pool did not survive the fork
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    backbone.shard(init_device_mesh("cpu", (2,)))
    completions = NativeSampler(backbone, max_rows=4).generate(prompts, 2, SAMPLING, KEY)
    results.put((rank, completions, len(rows_read)))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("split", [4, 6, 0], ids=["uneven", "second rank idle", "first rank idle"])
def test_ranks_of_a_sharded_policy_leave_together(backbone, prompts, rows_read, split, tmp_path):
    expected = NativeSampler(backbone).generate(prompts, 2, SAMPLING, KEY)
    rows_read.clear()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(
            target=generate_on_one_rank,
            args=(rank, tmp_path / "rendezvous", backbone, share, rows_read, results),
            daemon=True,
        )
        for rank, share in enumerate((prompts[:split], prompts[split:]))
    ]
    for process in processes:
        process.start()
    try:
        answers = sorted(results.get(timeout=60) for _ in processes)
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    (_, first, num_first), (_, second, num_second) = answers
    assert [c.ids for c in first + second] == [c.ids for c in expected]
    assert num_first == num_second
