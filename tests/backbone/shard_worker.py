"""One rank of sharded backbones: scores, takes steps, scores again, and leaves what it saw. Run by test_sharding."""

import json
import sys

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import DynamicCache

from lit_rlhf.backbone import Backbone, LoRA, weight_hash
from lit_rlhf.functional.logprobs import score_hidden


def full(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def observe(case: dict, mine: list[Tensor], mesh: DeviceMesh) -> dict:
    """Train one backbone for two steps on this rank's rows."""
    # A real vocabulary would be scored in several chunks, each recomputed in backward from sharded head weights.
    score_hidden.__kwdefaults__["max_logits"] = case["max_logits"]
    torch.manual_seed(0)
    lora = LoRA(**case["lora"]) if case["lora"] else None
    backbone = Backbone(
        case["folder"], lora=lora, reference=case["reference"], gradient_checkpointing=case["recompute"]
    )
    backbone.load()
    backbone.shard(mesh)
    optimizer = torch.optim.SGD([weight for weight in backbone.parameters() if weight.requires_grad], lr=0.01)
    seen = {}
    # The reference first: its forward must not decide which of the policy's weights get gradients.
    seen["reference"] = backbone.score_tokens(*mine, reference=True).logps
    with torch.no_grad():
        seen["before"] = backbone.score_tokens(*mine).logps
    for step in range(2):
        backbone.score_tokens(*mine, temperature=0.7).logps.sum().backward()
        trained = [(name, weight) for name, weight in backbone.named_parameters() if weight.requires_grad]
        seen[f"grads{step}"] = {name: full(weight.grad) for name, weight in trained}
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            seen[f"after{step}"] = backbone.score_tokens(*mine).logps
            ids, mask, _ = mine
            positions = torch.arange(4).expand(len(ids), -1)
            logits = backbone.next_token_logits(ids[:, :4], mask[:, :4], positions, DynamicCache())
            seen[f"next{step}"] = torch.log_softmax(logits, -1)
    seen["reference_after"] = backbone.score_tokens(*mine, reference=True).logps
    seen["hash"] = weight_hash(backbone.policy)
    backbone.save_model(case["saved"])
    state = backbone.state_dict()
    seen["names"] = sorted(state)
    backbone.score_tokens(*mine, reference=True)  # leaves the root's weights gathered
    backbone.load_state_dict(state, strict=True)
    seen["reloaded"] = backbone.score_tokens(*mine, reference=True).logps
    return seen


def main(cases: list[dict], out: str, world_size: int, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("data_parallel",))
    mine = [tensor[rank::world_size] for tensor in torch.load(f"{out}/rows.pt")]
    torch.save([observe(case, mine, mesh) for case in cases], f"{out}/seen{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]), rank=int(sys.argv[2]))
