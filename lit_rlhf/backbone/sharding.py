"""Sharding a backbone's weights over ranks with FSDP2."""

from collections.abc import Iterator

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers.modeling_layers import GradientCheckpointingLayer

from lit_rlhf_callbacks.errors import UserError

# The methods of a backbone that run its models. A call past the root's `forward` would meet embedding and head weights
# that are still sharded ("mixed Tensor and DTensor").
_FORWARD_METHODS = ("score_tokens", "score_head", "next_token_logits")


def shard_backbone(backbone: nn.Module, mesh: DeviceMesh) -> None:
    """Shard every decoder layer of policy and reference, then the rest with the backbone as root.

    Args:
        backbone: Loaded, and not yet given to an optimiser.
        mesh: One dimension, or Lightning's two, of which ``data_parallel`` is used.

    Raises:
        UserError: The mesh asks for tensor parallelism.
    """
    if mesh.ndim > 1:
        if mesh["tensor_parallel"].size() > 1:
            raise UserError(
                f"trainer.strategy: tensor parallelism is not supported; set data_parallel_size: {mesh.size()} and "
                "tensor_parallel_size: 1 (left at auto, Lightning takes every device of a node for tensor parallelism)"
            )
        mesh = mesh["data_parallel"]
    for layer in decoder_layers(backbone):
        fully_shard(layer, mesh=mesh)
    fully_shard(backbone, mesh=mesh)
    for method in _FORWARD_METHODS:
        register_fsdp_forward_method(backbone, method)


def decoder_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the repeated blocks of every Hugging Face model inside a module."""
    return (layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer))
