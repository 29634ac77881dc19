"""Writing a policy as an ordinary Hugging Face folder."""

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from lit_rlhf.backbone.adapters import add_lora
from lit_rlhf.backbone.heads import classifier_from, give_own_pad
from lit_rlhf_callbacks.errors import UserError

if TYPE_CHECKING:
    from lit_rlhf.backbone import Backbone


def save_policy(backbone: "Backbone", folder: Path, *, merge_adapter: bool) -> None:
    """Write a backbone's policy; see :meth:`~lit_rlhf.backbone.Backbone.save_model`."""
    if not merge_adapter and len(backbone.sources) > 1:
        raise UserError(f"the base '{backbone.name}' is an adapter merged on loading: save with the adapter merged")
    if not merge_adapter and backbone.head is not None:
        raise UserError(f"the score head on '{backbone.name}' is no part of its adapter: save with the adapter merged")
    weights = gather_weights(backbone.policy)
    head = gather_weights(backbone.head) if backbone.head is not None else None
    if not _is_first_rank():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = backbone.tokenizer
    if backbone.lora is not None and not merge_adapter:
        policy: Any = backbone.policy
        policy.save_pretrained(folder, state_dict=weights, save_embedding_layers=False)
    elif head is not None:
        classifier, tokenizer = classifier_from(backbone, weights, head), copy.deepcopy(tokenizer)
        give_own_pad(classifier, tokenizer, backbone.eos_ids)
        classifier.save_pretrained(folder)
    else:
        merged_model(backbone, weights).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _save_generation(backbone, folder)


def gather_weights(module: nn.Module) -> dict[str, Tensor]:
    """Copy all weights of a module, whole, to the CPU of the first rank; sharded ones one at a time.

    Args:
        module: Its ranks must all call this.

    Returns:
        The state dict on rank 0, nothing elsewhere.
    """
    weights = {}
    for name, tensor in module.state_dict().items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if _is_first_rank():
            weights[name] = whole.detach().to("cpu", copy=True)
    return weights


def merged_model(backbone: "Backbone", weights: dict[str, Tensor]) -> PreTrainedModel:
    """Build a second model around copied weights, adapters merged; the one in training is not touched.

    Args:
        backbone: Says how the policy is made.
        weights: From :func:`gather_weights` of the policy; used up.

    Returns:
        A plain model with the configuration as it was read (dropout included).
    """
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(copy.deepcopy(backbone.config))
        policy: Any = model if backbone.lora is None else add_lora(model, backbone.lora, backbone.name)
    policy.load_state_dict(weights, assign=True)
    model.tie_weights()
    return model if backbone.lora is None else policy.merge_and_unload()


def _save_generation(backbone: "Backbone", folder: Path) -> None:
    """Write generation settings that stop at every EOS in use."""
    settings = copy.deepcopy(backbone.generation_config)
    settings.eos_token_id = list(backbone.eos_ids)
    # Not `save_pretrained`: it refuses settings that published models do have, at the end of a whole run.
    (folder / "generation_config.json").write_text(settings.to_json_string(), encoding="utf-8")


def _is_first_rank() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0
