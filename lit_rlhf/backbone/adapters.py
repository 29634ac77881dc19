"""Low-rank adapters: putting them on, and turning them off to see the start policy again."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from lit_rlhf.backbone.reference import evaluation_mode
from lit_rlhf.backbone.resolve import first_line
from lit_rlhf.backbone.weights import hash_tensors
from lit_rlhf_callbacks.errors import UserError


@dataclass(kw_only=True)
class LoRA:
    """Low-rank adapters on a frozen base (Hu et al. 2021, https://arxiv.org/abs/2106.09685)."""

    r: int = 16
    """Rank of each adapter."""
    alpha: int = 32
    """Scale: the adapter's output is multiplied by ``alpha / r``."""
    dropout: float = 0.0
    """Dropout before each adapter; anything above 0 breaks ratio = 1 in RL."""
    target_modules: str | list[str] = "all-linear"
    """Names of the layers to adapt, or every linear layer but the lm head."""


def add_lora(model: PreTrainedModel, lora: LoRA, base_name: str, *, has_lm_head: bool = True) -> nn.Module:
    """Freeze a model and put fresh adapters on it.

    Args:
        model: The start policy.
        lora: Settings of the adapters.
        base_name: What a saved adapter should call its base.
        has_lm_head: False: the model ends in hidden states.

    Returns:
        The ``PeftModel``; its output equals the model's until the first update.

    Raises:
        UserError: No layer goes by the names in ``lora.target_modules``, or one is an embedding that is also the head.
    """
    from peft import LoraConfig, TaskType, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    settings = LoraConfig(
        task_type=TaskType.CAUSAL_LM if has_lm_head else TaskType.FEATURE_EXTRACTION,
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    try:
        with _old_names_allowed():
            policy = get_peft_model(model, settings)
    except ValueError as error:
        raise UserError(f"lora.target_modules={lora.target_modules!r}: {first_line(error)}") from error
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if model.config.tie_word_embeddings and any(isinstance(end, BaseTunerLayer) for end in ends):
        raise UserError(
            f"lora.target_modules={lora.target_modules!r} adapts the embedding, which this model shares with its lm "
            "head: merged, it would change both; leave it out"
        )
    policy.peft_config["default"].base_model_name_or_path = base_name
    return policy


def merge_adapter(model: PreTrainedModel, source: str) -> tuple[PreTrainedModel, str]:
    """Add a saved PEFT adapter to a model's own weights.

    Args:
        model: What the adapter was trained on; used up.
        source: The adapter's folder or hub id.

    Returns:
        The merged model, and the hash of the adapter's weights.

    Raises:
        UserError: The folder lacks some of the adapter's weights.
    """
    from peft import PeftModel, get_peft_model_state_dict

    with _old_names_allowed():
        warnings.filterwarnings("error", message="Found missing adapter keys")  # they would stay at random values
        try:
            policy = PeftModel.from_pretrained(model, source)
        except UserWarning as error:
            raise UserError(f"adapter '{source}' lacks some of its weights: give a complete folder") from error
    adapter_hash = hash_tensors(get_peft_model_state_dict(policy, save_embedding_layers=False))
    return policy.merge_and_unload(), adapter_hash


@contextmanager
def adapters_off(policy: nn.Module) -> Iterator[None]:
    """Make a PEFT policy its own reference: adapters disabled, eval mode; undone also after an exception."""
    with evaluation_mode(policy), policy.disable_adapter():  # type: ignore[operator]
        yield


@contextmanager
def _old_names_allowed() -> Iterator[None]:
    """Silence what peft asks of transformers by a name that is on its way out; nothing a user could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield
