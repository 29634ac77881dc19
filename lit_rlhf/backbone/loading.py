"""Loading weights, tokenizer and settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import cached_file

from lit_rlhf.backbone.adapters import merge_adapter
from lit_rlhf.backbone.resolve import first_line, has_file, resolve_model
from lit_rlhf.backbone.weights import chain_hash, weight_hash
from lit_rlhf_callbacks.errors import UserError


def source_chain(name: str) -> list[str]:
    """Resolve a model name down to full weights.

    Args:
        name: What :func:`resolve_model` takes.

    Returns:
        The source of the full weights, then of each PEFT adapter to merge into it, in order. Usually one entry.

    Raises:
        UserError: The name, or the base an adapter was trained on, cannot be found.
    """
    source = resolve_model(name).source
    if has_file(source, "config.json") or not has_file(source, "adapter_config.json"):
        return [source]
    adapter_config = cached_file(source, "adapter_config.json")
    assert adapter_config is not None  # has_file said so
    base = json.loads(Path(adapter_config).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise UserError(f"adapter '{name}' doesn't say what it was trained on: set base_model_name_or_path in {source}")
    return [*source_chain(base), source]


def load_config(source: str) -> PreTrainedConfig:
    """Load a model's configuration and check that it is a causal language model's.

    Raises:
        UserError: It is not, or its weights are quantised, or this transformers version doesn't know the architecture.
    """
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UserError(f"model '{source}': config.json cannot be used ({first_line(error)})") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(f"model '{source}' is a {config.model_type} model, not a causal language model: give another")
    if getattr(config, "quantization_config", None) is not None:
        raise UserError(f"model '{source}' is quantised, and quantised weights cannot be trained: give the original")
    return config


def load_tokenizer(sources: Sequence[str]) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the last source that has one (an adapter's own before its base's).

    Raises:
        UserError: None of them holds a tokenizer.
    """
    for source in reversed(sources):
        if has_file(source, "tokenizer_config.json") or has_file(source, "tokenizer.json"):
            return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    raise UserError(f"model '{sources[-1]}' has no tokenizer: copy tokenizer.json and tokenizer_config.json into it")


def load_generation_config(sources: Sequence[str], config: PreTrainedConfig) -> GenerationConfig:
    """Load the generation settings of the last source that has any, else those implied by ``config``."""
    for source in reversed(sources):
        if has_file(source, "generation_config.json"):
            return GenerationConfig.from_pretrained(source)
    return GenerationConfig.from_model_config(config)


def find_eos_ids(tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig) -> tuple[int, ...]:
    """Collect every token that ends a completion: the tokenizer's own first, then the generation settings'.

    Raises:
        UserError: There is none, so no completion could ever end.
    """
    listed = generation_config.eos_token_id
    candidates = [tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])]
    eos_ids = tuple(dict.fromkeys(token for token in candidates if token is not None))
    if not eos_ids:
        raise UserError(f"tokenizer of '{tokenizer.name_or_path}' has no eos_token: set it in tokenizer_config.json")
    return eos_ids


def load_start_policy(sources: Sequence[str], auto_class: Any = AutoModelForCausalLM) -> tuple[PreTrainedModel, str]:
    """Load full weights in fp32 and merge each adapter of the chain into them.

    Attention is left to transformers, which takes ``sdpa`` wherever the architecture supports it.

    Args:
        sources: From :func:`source_chain`.
        auto_class: Which of transformers' classes makes a model of them.

    Returns:
        The model, and the hash of the weights it was made from.

    Raises:
        UserError: No safetensors file, or one that does not hold all of the model's weights.
    """
    try:
        loaded: Any = auto_class.from_pretrained(
            sources[0],
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except OSError as error:
        raise UserError(f"model '{sources[0]}': no weights ({first_line(error)}); only safetensors are read") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise UserError(
            f"model '{sources[0]}' lacks {len(missing)} weights of its architecture (first: {missing[0]}); "
            "they would be random, so give a complete folder"
        )
    hashes = [weight_hash(model)]
    for source in sources[1:]:
        model, adapter_hash = merge_adapter(model, source)
        hashes.append(adapter_hash)
    return model, chain_hash(hashes)


def zero_dropout(model: PreTrainedModel) -> None:
    """Set every dropout of a model to zero, so that train mode and eval mode compute the same numbers.

    Three places hold one: ``nn.Dropout`` modules, float attributes of attention layers, and the configuration, which
    some layers read in ``forward``.
    """
    for holder in [*model.modules(), model.config, model.config.get_text_config()]:
        if isinstance(holder, nn.modules.dropout._DropoutNd):
            holder.p = 0.0
        for name, value in list(vars(holder).items()):
            if isinstance(value, float) and ("dropout" in name or name.endswith("pdrop") or name == "layerdrop"):
                setattr(holder, name, 0.0)
