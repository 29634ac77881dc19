"""One rank of a sharded policy: completes its shares of the prompts and leaves what it made. Run by test_lockstep."""

import json
import sys
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from lit_rlhf.backbone import Backbone
from lit_rlhf.rollout import NativeSampler, NoiseKey, Prompt, Sampling


def main(folder: str, out: str, prompts: list[dict], splits: list[int], rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    backbone = Backbone(folder, gradient_checkpointing=False)
    backbone.load()
    backbone.shard(init_device_mesh("cpu", (2,), mesh_dim_names=("data_parallel",)))
    forwards = []
    backbone.policy.register_forward_pre_hook(lambda module, args: forwards.append(module))
    seen = []
    for split in splits:
        mine = [Prompt(**prompt) for prompt in (prompts[split:] if rank else prompts[:split])]
        forwards.clear()
        completions = NativeSampler(backbone, max_rows=4).generate(
            mine, 2, Sampling(max_new_tokens=10), NoiseKey(0, "train", 0)
        )
        seen.append({"completions": [asdict(c) for c in completions], "num_forwards": len(forwards)})
    with open(f"{out}/seen{rank}.json", "w") as file:
        json.dump(seen, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]), rank=int(sys.argv[2]))
