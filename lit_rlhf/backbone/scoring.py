"""Log-probabilities of given tokens, from the last hidden states and the lm head."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lit_rlhf.backbone.reference import evaluation_mode
from lit_rlhf.functional.logprobs import (
    TokenScores,
    scatter_scores,
    score_hidden,
    score_logits,
    select_predictors,
    token_logps,
)

_TOLERANCE = 1e-4
_PROBE_LENGTH = 8


def position_ids_from_mask(attention_mask: Tensor) -> Tensor:
    """Number the real tokens of each row from 0, wherever the padding is.

    Args:
        attention_mask: ``[B, T]``, non-zero on real tokens.

    Returns:
        ``[B, T]`` int64. Pads get the position of the token before them (0 at the left), which any model can embed.

    Example:
        >>> position_ids_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 2]])
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def score_rows(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    score_mask: Tensor,
    *,
    position_ids: Tensor | None = None,
    temperature: float = 1.0,
    entropy_grad: bool = False,
    from_hidden: bool = True,
) -> TokenScores:
    """Score the marked tokens of each row under a Hugging Face causal language model.

    Args:
        model: The Hugging Face model (inside PEFT: its ``get_base_model()``).
        input_ids: ``[B, T]`` token ids, padded on either side.
        attention_mask: ``[B, T]``, non-zero on real tokens.
        score_mask: ``[B, T]`` bool, True on the tokens to score; never on a row's first token.
        position_ids: ``[B, T]``, from 0 in each of the documents that share a row. They then keep the documents apart
            (see :func:`keeps_documents_apart`), in place of the attention mask. None: a row is one document.
        temperature: What the logits are divided by.
        entropy_grad: Whether gradients flow through the entropy.
        from_hidden: Apply the lm head here, in chunks and at scored tokens only. False asks the model for its logits,
            all ``[B, T, V]`` of them: for models that change logits after the head (see :func:`head_matches`).

    Returns:
        ``TokenScores`` of ``[B, T]`` in fp32, aligned to the token scored, zero where ``score_mask`` is False.
    """
    inputs = {
        "input_ids": input_ids,
        # transformers reads where documents begin off the positions, and only where it is given no mask.
        "attention_mask": attention_mask if position_ids is None else None,
        "position_ids": position_ids_from_mask(attention_mask) if position_ids is None else position_ids,
        "use_cache": False,
    }
    targets = input_ids[score_mask]  # [M]
    if from_hidden:
        hidden = model.base_model(**inputs).last_hidden_state  # [B, T, H]
        head = model.get_output_embeddings()
        scores = score_hidden(
            select_predictors(hidden, score_mask),
            head.weight,
            targets,
            temperature=temperature,
            bias=head.bias,
            entropy_grad=entropy_grad,
        )
    else:
        logits = select_predictors(model(**inputs).logits, score_mask)  # [M, V]
        scores = score_logits(logits, targets, temperature, entropy_grad)
    return TokenScores(*(scatter_scores(values, score_mask) for values in scores))


@torch.no_grad()
def head_matches(model: PreTrainedModel) -> bool:
    """Check on one row, in eval mode, that hidden states times the lm head give the model's own log-probs.

    They do not where logits are changed after the head (soft-capping, a logit scale) or where the head is not one
    weight matrix (LoRA or a trained copy on the lm head, which numbers could not show: a new adapter is zero).

    Args:
        model: The Hugging Face model (inside PEFT: its ``get_base_model()``).

    Returns:
        Whether the two agree within 1e-4 on every token.
    """
    if not isinstance(model.get_output_embeddings(), nn.Linear) or model.base_model is model:
        return False
    embedding: Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    vocab_size, device = len(embedding), embedding.device
    input_ids = (torch.arange(1, _PROBE_LENGTH + 1, device=device) * 7919 % vocab_size)[None]  # [1, T]
    attention_mask = torch.ones_like(input_ids)
    score_mask = torch.arange(_PROBE_LENGTH, device=device)[None] > 0
    with evaluation_mode(model):
        chunked = score_rows(model, input_ids, attention_mask, score_mask).logps
        logits = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids_from_mask(attention_mask),
            use_cache=False,
        ).logits
    return bool((chunked - token_logps(logits, input_ids)).abs().max() <= _TOLERANCE)


@torch.no_grad()
def keeps_documents_apart(model: PreTrainedModel, *, from_hidden: bool) -> bool:
    """Check on two rows of documents, in eval mode, that one behind others is scored as if it stood alone.

    Attention layers do so wherever the model makes its mask from the positions; layers with a state of another kind
    (Mamba, linear attention) mostly do not.

    Args:
        model: The Hugging Face model (inside PEFT: its ``get_base_model()``).
        from_hidden: As of :func:`score_rows`.

    Returns:
        Whether the two agree within 1e-4 on every token.
    """
    embedding: Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    ids = torch.arange(1, 4 * _PROBE_LENGTH + 1, device=embedding.device) * 7919 % len(embedding)
    documents = ids.view(4, _PROBE_LENGTH)
    score_mask = torch.arange(_PROBE_LENGTH, device=ids.device).expand_as(documents) > 0
    two_a_row = ids.view(2, 2 * _PROBE_LENGTH)
    positions = torch.arange(2 * _PROBE_LENGTH, device=ids.device).expand_as(two_a_row) % _PROBE_LENGTH
    with evaluation_mode(model):
        alone = score_rows(model, documents, torch.ones_like(documents), score_mask, from_hidden=from_hidden)
        together = score_rows(
            model,
            two_a_row,
            torch.ones_like(two_a_row),
            score_mask.reshape(two_a_row.shape),
            position_ids=positions,
            from_hidden=from_hidden,
        )
    return bool((together.logps.view_as(alone.logps) - alone.logps).abs().max() <= _TOLERANCE)
