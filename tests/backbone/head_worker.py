"""One rank of sharded reward models: scores, takes a step, scores again, saves. Run by test_heads."""

import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from lit_rlhf.backbone import Backbone, LoRA


def observe(case, mine, mesh):
    torch.manual_seed(0)
    backbone = Backbone(case["folder"], head="score", lora=LoRA(r=2) if case["lora"] else None)
    backbone.load()
    backbone.shard(mesh)
    optimizer = torch.optim.SGD([weight for weight in backbone.parameters() if weight.requires_grad], lr=0.01)
    ids, mask, _ = mine
    scores = backbone.score_head(ids, mask)
    scores[mask].sum().backward()
    seen = {"before": scores.detach(), "head": backbone.head.weight.grad.full_tensor().clone()}
    optimizer.step()
    with torch.no_grad():
        seen["after"] = backbone.score_head(ids, mask)
    backbone.save_model(case["saved"])
    return seen


def main(cases, out, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("data_parallel",))
    mine = [tensor[rank::2] for tensor in torch.load(f"{out}/rows.pt")]
    torch.save([observe(case, mine, mesh) for case in cases], f"{out}/seen{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]), rank=int(sys.argv[2]))
