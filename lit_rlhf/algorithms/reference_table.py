"""Reference log-probs computed once and kept on disk, so that no reference is in memory while training."""

import os

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from lit_rlhf.algorithms.forwards import SCORING_TOKENS
from lit_rlhf.backbone import Backbone
from lit_rlhf.data.batches import collate
from lit_rlhf.data.cache import cache_root
from lit_rlhf.data.table import ExampleTable
from lit_rlhf_callbacks.windows import split_by_budget


def load_or_score(model: str, start_hash: str, examples: ExampleTable, device: torch.device) -> dict[int, Tensor]:
    """Return each example's reference log-probs, from disk or by scoring with the start policy.

    The name on disk changes with the start policy's weights and with every token and mask of the data, and so with the
    data, the chat template and the truncation. The start policy is loaded afresh: on a resume the policy in memory has
    long moved on.

    Args:
        model: The start policy's name.
        start_hash: Hash of its weights.
        examples: All that are trained on or evaluated.
        device: Where to score.

    Returns:
        For each example's row, ``[samples, 2]``: log-probs summed over the scored tokens, and their number.
    """
    path = cache_root() / "references" / f"{start_hash}-{examples.fingerprint}.pt"
    if path.is_file():
        return torch.load(path, weights_only=True)
    rank_zero_info(f"scoring {len(examples)} examples with the reference, once; kept in {path}")
    table = _score(model, examples, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    torch.save(table, unfinished)
    unfinished.replace(path)
    return table


@torch.no_grad()
def _score(model: str, examples: ExampleTable, device: torch.device) -> dict[int, Tensor]:
    backbone = Backbone(model)
    backbone.load()
    backbone.to(device)
    table: dict[int, Tensor] = {}
    widest = max(len(example.samples) for example in examples)
    for part in split_by_budget([example.length for example in examples], max(SCORING_TOKENS // widest, 1)):
        chosen = [examples[place] for place in part]
        tensors = {name: value.to(device) for name, value in collate(chosen, backbone.pad_id).items()}
        mask = tensors["score_mask"]
        logps = backbone.score_tokens(tensors["input_ids"], tensors["attention_mask"], mask).logps
        sums = torch.stack([(logps * mask).sum(-1), mask.sum(-1).float()], dim=-1).cpu()  # [S, 2]
        for place, example in enumerate(chosen):
            table[example.row] = sums[tensors["example"].cpu() == place]
    return table
