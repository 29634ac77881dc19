"""Forwards over experience that keep ranks in step: chunked scoring, and a dummy where a rank has nothing to do."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lit_rlhf.algorithms.ranks import max_over_ranks
from lit_rlhf.backbone import Backbone
from lit_rlhf.rollout.experience import Experience
from lit_rlhf_callbacks.windows import split_by_budget

Shown = dict[str, Tensor]

SCORING_TOKENS = 16_384  # padded tokens per forward without gradients, unless a budget is set


def dummy_share(backbone: Backbone, *, reference: bool = False) -> Tensor:
    """Run one forward whose loss is zero but touches every parameter and every collective.

    A rank without rows must not skip a backward: DDP waits for its gradients, FSDP2 for its gathers.

    Args:
        backbone: Whose policy runs.
        reference: Run the reference instead: FSDP2 would hand the others a layer of the wrong model.
    """
    device = next(backbone.parameters()).device
    input_ids = torch.zeros(1, 2, dtype=torch.long, device=device)
    score_mask = torch.tensor([[False, True]], device=device)
    attention_mask = torch.ones_like(score_mask)
    if backbone.head is not None:
        return backbone.score_head(input_ids, attention_mask).sum() * 0.0
    scores = backbone.score_tokens(input_ids, attention_mask, score_mask, reference=reference)
    return scores.logps.sum() * 0.0


def recomputed(compute: Callable[[], tuple[Tensor, Shown]]) -> tuple[Tensor, Shown]:
    """Run one part of a micro-batch and keep no activations: the backward runs it again and holds one part's at a time.

    With sharded weights every rank must do so for its part at the same moment, a dummy included.

    Args:
        compute: Returns the part's share of the loss, and what it shows, detached.
    """

    def share_to_recompute() -> tuple[Tensor, Shown]:
        share, shown = compute()
        # A factor kept for the backward is the first thing it asks for, whatever the loss: so everywhere the forward is
        # run again before FSDP2 gathers a layer for the backward. In another order a rank would get a wrong layer.
        return share * share.new_ones(()), shown

    return checkpoint(share_to_recompute, use_reentrant=False)


@torch.no_grad()
def score_experience(
    backbone: Backbone, experience: Experience, max_tokens: int | None, *, temperature: float, reference: bool
) -> Tensor:
    """Return log-probs of an experience's completion tokens, ``[N, T]``, under the policy or the reference.

    Args:
        backbone: Scores.
        experience: N rows on this rank.
        max_tokens: Padded tokens one forward may hold.
        temperature: What logits are divided by.
        reference: Score with the reference.
    """
    logps = torch.zeros_like(experience.sampler_logps)
    lengths = experience.lengths.tolist()
    parts = split_by_budget(lengths, max_tokens or SCORING_TOKENS) if lengths else []
    num_parts = int(max_over_ranks(torch.tensor(len(parts))))
    for part in parts:
        batch = experience.rows(part)
        scores = backbone.score_tokens(
            batch.input_ids,
            batch.attention_mask,
            batch.completion_mask,
            temperature=temperature,
            reference=reference,
        )
        logps[part, : scores.logps.shape[1]] = scores.logps
    for _ in range(num_parts - len(parts)):
        dummy_share(backbone, reference=reference)
    return logps


def join_shown(shown: Sequence[Shown]) -> Shown:
    """Join the per-token tensors of a micro-batch's parts, padded with zeros to the widest."""
    parts = [part for part in shown if part]
    if len(parts) <= 1:
        return dict(parts[0]) if parts else {}
    width = max(part["input_ids"].shape[1] for part in parts)

    def widen(value: Tensor) -> Tensor:
        return torch.nn.functional.pad(value, (0, width - value.shape[1])) if value.dim() == 2 else value

    return {name: torch.cat([widen(part[name]) for part in parts]) for name in parts[0]}
