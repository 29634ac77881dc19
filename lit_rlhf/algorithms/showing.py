"""What an online run shows of itself to callbacks that know nothing of it (the protocol of callbacks/README.md)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lit_rlhf.backbone import Backbone
from lit_rlhf.data.chat import as_completion
from lit_rlhf.rewards import RewardSet
from lit_rlhf.rollout import NoiseKey, Sampling
from lit_rlhf.rollout.protocol import Completion, Sampler
from lit_rlhf.rollout.scored import NOT_COLUMNS, Row, tokenise


def complete_prompts(
    backbone: Backbone, sampler: Sampler, rewards: RewardSet | None, prompts: Sequence[Row], sampling: dict[str, Any]
) -> list[dict[str, Any]]:
    """Complete prompts once each, with noise that depends on the settings' seed and the prompt alone.

    Args:
        backbone: Its tokenizer renders and decodes.
        sampler: Generates.
        rewards: Score the completions, where there are any and the prompts carry the columns that they need.
        prompts: Rows with ``prompt_id``, ``prompt`` and any further columns.
        sampling: ``max_new_tokens``, ``temperature``, ``top_k``, ``top_p`` and ``seed``.

    Returns:
        One dict per prompt: ``prompt_id``, ``prompt`` and ``completion`` with special tokens visible, ``num_tokens``,
        ``finish`` and, if known, ``rewards`` by name.
    """
    settings = {name: value for name, value in sampling.items() if name != "seed"}
    key = NoiseKey(sampling["seed"], "panel", phase=0)
    completions = sampler.generate(tokenise(backbone.tokenizer, prompts), 1, Sampling(**settings), key)
    scores = _scores(backbone, rewards, prompts, completions)
    return [
        {
            "prompt_id": completion.prompt_id,
            "prompt": backbone.tokenizer.decode(completion.prompt_ids),
            "completion": backbone.tokenizer.decode(completion.ids),
            "num_tokens": len(completion.ids),
            "finish": completion.finish,
            **({"rewards": score} if score else {}),
        }
        for completion, score in zip(completions, scores, strict=True)
    ]


def reward_probes(rewards: RewardSet, rows: Sequence[Row]) -> list[tuple[str, Callable[[], list[float | None]]]]:
    """Return, per reward function, a call that scores the right answer, a wrong one and none for a fixed prompt.

    Args:
        rewards: The run's functions.
        rows: Data rows; the first with an ``answer`` is used.
    """
    row = next((row for row in rows if isinstance(row.get("answer"), str)), None)
    if row is None:
        return []
    texts = [row["answer"], row["answer"] + "?", ""]

    def probe(column: int) -> list[float | None]:
        table = rewards(
            [row["prompt"]] * len(texts),
            [as_completion(row["prompt"], text) for text in texts],
            completion_ids=[[0] * len(text) for text in texts],
            prompt_ids=[row["prompt_id"]] * len(texts),
            columns={name: [value] * len(texts) for name, value in row.items() if name not in NOT_COLUMNS},
        )
        return [None if score != score else score for score in table.scores[:, column].tolist()]

    return [(name, lambda column=column: probe(column)) for column, name in enumerate(rewards.names)]  # type: ignore[misc]


def _scores(
    backbone: Backbone, rewards: RewardSet | None, prompts: Sequence[Row], completions: Sequence[Completion]
) -> list[dict[str, float | None]]:
    columns = set.intersection(*(set(row) for row in prompts)) - NOT_COLUMNS if prompts else set()
    if rewards is None or not prompts or any(reward.missing(columns) for reward in rewards.rewards):
        return [{} for _ in prompts]
    texts = backbone.tokenizer.batch_decode([c.ids for c in completions], skip_special_tokens=True)
    table = rewards(
        [row["prompt"] for row in prompts],
        [as_completion(row["prompt"], text) for row, text in zip(prompts, texts, strict=True)],
        completion_ids=[completion.ids for completion in completions],
        prompt_ids=[row["prompt_id"] for row in prompts],
        columns={name: [row[name] for row in prompts] for name in sorted(columns)},
    )
    unknown = torch.isnan(table.scores).tolist()
    return [
        {name: None if missing else score for name, score, missing in zip(rewards.names, row, gaps, strict=True)}
        for row, gaps in zip(table.scores.tolist(), unknown, strict=True)
    ]
