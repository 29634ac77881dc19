"""What a checkpoint holds of a backbone: the trained weights, and which weights they started from."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_rlhf.backbone import Backbone


def keep_frozen_out_of_checkpoints(backbone: "Backbone") -> None:
    """Leave the reference and the frozen base of adapters out of the ``state_dict``; put them back on loading.

    Module hooks do it, since they are the only way that survives strict loading, a deep copy of the whole module
    (Lightning's ``EMAWeightAveraging``) and sharding. What is put back is the module's own frozen weights, so whatever
    a foreign checkpoint holds under their names is never loaded.

    Args:
        backbone: Has ``policy`` and ``reference``, both loaded; gets ``unsaved_names``.
    """
    backbone.unsaved_names = frozenset(_frozen_names(backbone))
    backbone.register_state_dict_post_hook(_drop)
    backbone.register_load_state_dict_pre_hook(_put_back)


def _frozen_names(backbone: "Backbone") -> set[str]:
    names = set()
    if backbone.reference is not None:
        names |= {f"reference.{name}" for name in backbone.reference.state_dict()}
    if backbone.lora is not None:
        trained = {name for name, weight in backbone.policy.named_parameters() if weight.requires_grad}
        names |= {f"policy.{name}" for name in backbone.policy.state_dict() if name not in trained}
    return names


def _drop(backbone: "Backbone", state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in backbone.unsaved_names:
        del state_dict[prefix + name]


def _put_back(backbone: "Backbone", state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for child in ("policy", "reference"):
        module = getattr(backbone, child)
        for name, value in (module.state_dict() if module is not None else {}).items():
            if f"{child}.{name}" in backbone.unsaved_names:
                state_dict[f"{prefix}{child}.{name}"] = value
