"""Score heads: a backbone that ends in one number per token, as reward models do, instead of in words."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import cached_file

from lit_rlhf.backbone.adapters import add_lora
from lit_rlhf.backbone.loading import load_start_policy
from lit_rlhf.backbone.scoring import position_ids_from_mask
from lit_rlhf_callbacks.errors import UserError

if TYPE_CHECKING:
    from lit_rlhf.backbone import Backbone

Head = Literal["none", "score"]
"""What a backbone ends in: the model's own lm head, or one number per token."""

PAD_TOKEN = "<|pad|>"


def check_head(head: Head, name: str, sources: Sequence[str], config: PreTrainedConfig) -> None:
    """Refuse a model that does not go with the head.

    Args:
        head: What is wanted.
        name: The model, as the user wrote it.
        sources: Its full weights, then its adapters.
        config: Of the full weights.

    Raises:
        UserError: A reward model where a policy is wanted; a classifier of more than one label, an adapter of a
            classifier, or an architecture that transformers has no classifier for, where a reward model is wanted.
    """
    is_scorer = is_reward_model(config)
    if head == "none" and is_scorer:
        raise UserError(f"model '{name}' is a reward model, which writes no text: give the model it was trained from")
    for source in sources[1:]:
        settings = cached_file(source, "adapter_config.json")
        if settings and json.loads(Path(settings).read_text(encoding="utf-8")).get("task_type") == "SEQ_CLS":
            raise UserError(f"model '{name}': {source} is an adapter of a classifier; merge it into its base first")
    if head == "score" and is_scorer and config.num_labels != 1:
        raise UserError(f"model '{name}' has {config.num_labels} labels: a reward model has num_labels 1")
    if head == "score" and type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise UserError(
            f"model '{name}': transformers has no sequence classifier for {config.model_type} models, so a reward "
            "model of it could not be saved; give another architecture"
        )


def is_reward_model(config: PreTrainedConfig) -> bool:
    """Say whether a folder's configuration is a sequence classifier's."""
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or ())


def load_scorer(sources: Sequence[str], config: PreTrainedConfig) -> tuple[PreTrainedModel, nn.Linear, str]:
    """Load a model without its lm head, and put a score head on it: its own if it is a reward model, else a new one.

    Args:
        sources: The full weights, then each adapter to merge into them.
        config: Of the full weights.

    Returns:
        The model that ends in hidden states, the head, and the hash of the weights they were made from.

    Raises:
        UserError: Weights are missing, a reward model's head among them.
    """
    model: Any
    if not is_reward_model(config):
        model, start_hash = load_start_policy(sources)
        return model.base_model, new_head(config.get_text_config().hidden_size), start_hash
    model, start_hash = load_start_policy(sources, AutoModelForSequenceClassification)
    return model.base_model, model.score.train(), start_hash


def new_head(hidden_size: int) -> nn.Linear:
    """Make a head whose first scores are near zero: without bias, weights from N(0, 1/(hidden + 1)), as in OpenRLHF.

    It depends on the run's seed alone, not on what drew random numbers before, so that it is the same on every rank.

    Args:
        hidden_size: H of the hidden states ``[B, T, H]``.

    >>> new_head(64).weight.shape
    torch.Size([1, 64])
    """
    head = nn.Linear(hidden_size, 1, bias=False, dtype=torch.float32)
    generator = torch.Generator().manual_seed(torch.initial_seed())
    nn.init.normal_(head.weight, std=1 / (hidden_size + 1), generator=generator)
    return head


def score_positions(model: nn.Module, head: nn.Linear, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Apply the head to the last hidden state of every token, in fp32 whatever the precision of the rest.

    Args:
        model: Ends in hidden states.
        head: From H to 1.
        input_ids: ``[B, T]`` token ids, padded on either side.
        attention_mask: ``[B, T]``, non-zero on real tokens.

    Returns:
        ``[B, T]`` fp32; meaningless on pads.
    """
    hidden = model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids_from_mask(attention_mask),
        use_cache=False,
    ).last_hidden_state  # [B, T, H]
    with torch.autocast(hidden.device.type, enabled=False):
        return nn.functional.linear(hidden.float(), head.weight.float()).squeeze(-1)


def last_real(values: Tensor, attention_mask: Tensor) -> Tensor:
    """Take each row's value at its last real token, found by the mask and never by comparing ids with the pad.

    Args:
        values: ``[B, T]``.
        attention_mask: ``[B, T]``, non-zero on real tokens, padded on either side.

    Returns:
        ``[B]``.

    >>> last_real(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[True, True, False]]))
    tensor([2.])
    """
    places = torch.arange(values.shape[1], device=values.device)
    last = (places * attention_mask.bool()).argmax(-1, keepdim=True)
    return values.gather(1, last).squeeze(1)


def classifier_from(backbone: "Backbone", weights: dict[str, Tensor], head: dict[str, Tensor]) -> PreTrainedModel:
    """Build transformers' own sequence classifier around copied weights, adapters merged.

    Args:
        backbone: Says how the model is made.
        weights: The policy's, whole and on the CPU; used up.
        head: The head's.

    Returns:
        A plain model with one label.
    """
    config = copy.deepcopy(backbone.config)
    config.num_labels = 1
    with torch.device("meta"):
        classifier: Any = AutoModelForSequenceClassification.from_config(config)
        policy: Any = classifier.base_model
        if backbone.lora is not None:
            policy = add_lora(policy, backbone.lora, backbone.name, has_lm_head=False)
    policy.load_state_dict(weights, assign=True)
    if backbone.lora is not None:
        policy.merge_and_unload()  # in place
    classifier.score.load_state_dict(head, assign=True)
    return classifier


def give_own_pad(classifier: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int]) -> None:
    """See to it that transformers reads the score where it was trained.

    Its classifiers read the last token whose id is not the pad's. Where the pad also ends a text (pad = EOS), that
    would be the token before the last, so a token that no text contains becomes the pad.

    Args:
        classifier: Its configuration names the pad; its embedding gets a row for a new one.
        tokenizer: Belongs to the classifier; may get a new token.
        eos_ids: Every token that ends a completion.
    """
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in {*eos_ids, *_in_template(tokenizer)}:
        tokenizer.add_special_tokens({"pad_token": PAD_TOKEN})
    text_config = classifier.config.get_text_config()
    embedding: Any = classifier.get_input_embeddings()
    num_new = tokenizer.pad_token_id + 1 - len(embedding.weight)
    if num_new > 0:
        embedding.weight = nn.Parameter(nn.functional.pad(embedding.weight.data, (0, 0, 0, num_new)))
        embedding.num_embeddings = text_config.vocab_size = len(embedding.weight)
    classifier.config.pad_token_id = text_config.pad_token_id = tokenizer.pad_token_id


def _in_template(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that the chat template puts around messages."""
    if tokenizer.chat_template is None:
        return []
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rendered: Any = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)
    return list(rendered["input_ids"])
