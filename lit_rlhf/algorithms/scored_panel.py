"""What a reward model shows of itself: held-out completions with their scores, since it writes none of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lit_rlhf.data.batches import collate
from lit_rlhf.data.samples import Example
from lit_rlhf_callbacks.errors import UserError

SEPARATOR = "  |  "


def panel_rows(examples: Sequence[Example], num: int, tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    """Make prompts for a panel of the first held-out examples.

    Args:
        examples: Held-out ones.
        num: How many to show.
        tokenizer: Decodes their prompts.

    Returns:
        Rows with ``prompt_id``, ``prompt`` and the example's ``place``.
    """
    rows = []
    for place in range(min(num, len(examples))):
        first = examples[place].samples[0]
        prompt = tokenizer.decode(list(first.ids[: first.num_prompt]))
        rows.append({"prompt_id": examples[place].row, "prompt": prompt, "place": place})
    return rows


def scored_rows(
    rows: Sequence[dict[str, Any]],
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    score: Callable[[dict[str, Tensor]], Tensor],
) -> list[dict[str, Any]]:
    """Score the completions of a panel's examples.

    Args:
        rows: From :func:`panel_rows`.
        examples: The same as there.
        tokenizer: Decodes, and pads.
        score: From collated tensors to ``[S]`` scores.

    Returns:
        One dict per row as a panel shows it: an example's completions in its own order, best first, and their scores.

    Raises:
        UserError: A row is not from :func:`panel_rows`.
    """
    shown = []
    for row in rows:
        if "place" not in row:
            raise UserError(
                "SamplePanel.prompts: a reward model writes no completions; leave prompts out to see scores"
            )
        example = examples[row["place"]]
        with torch.no_grad():
            scores = score(collate([example], tokenizer.pad_token_id or 0)).tolist()
        texts = [str(tokenizer.decode(list(sample.ids[sample.num_prompt :]))) for sample in example.samples]
        names = ["score"] if len(scores) == 1 else [f"score {place}" for place in range(1, len(scores) + 1)]
        shown.append(
            {
                "prompt_id": row["prompt_id"],
                "prompt": row["prompt"],
                "completion": SEPARATOR.join(texts),
                "num_tokens": sum(len(sample) - sample.num_prompt for sample in example.samples),
                "finish": "stop",
                "rewards": dict(zip(names, scores, strict=True)),
            }
        )
    return shown
