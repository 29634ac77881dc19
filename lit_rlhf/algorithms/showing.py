"""What an online run shows of itself to callbacks that know nothing of it (the protocol of callbacks/README.md)."""

from collections.abc import Sequence
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


FORMS = ("{}", "The answer is {}.", "#### {}", "\\boxed{{{}}}")
"""Ways to write an answer that some verifier might want; the tags of functions that read tags come on top."""

JUDGED_BY = frozenset({"answer", "rg_entry"})  # columns that only a function which knows what is right asks for


def reward_probes(rewards: RewardSet, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return, per reward function, a call that scores known answers: right and wrong ones, an empty and a cut one.

    Args:
        rewards: The run's functions.
        rows: Data rows; the first ones with different texts as ``answer`` are used, each one's being wrong for the
            other.

    Returns:
        One dict per function: ``name``; ``call``, which returns one score per case; ``cases``, what each of them is:
        ``right`` and as many ``wrong`` (in the same forms, in the same order), ``empty``, ``truncated``; ``judges``,
        whether the function defines what is right, which one does that asks for the column ``answer``.
    """
    texts = [row for row in rows if isinstance(row.get("answer"), str) and row["answer"]]
    if not texts:
        return []
    first = texts[0]
    other = next((row["answer"] for row in texts if row["answer"] != first["answer"]), None)
    tags = {str(getattr(reward.function, "tag", None) or "answer") for reward in rewards.rewards}
    forms = [*FORMS, *(f"<{tag}>{{}}</{tag}>" for tag in sorted(tags | {"answer"}))]
    known = [("right", form.format(first["answer"])) for form in forms]
    if other is not None:
        known += [("wrong", form.format(other)) for form in forms]
    known += [("empty", ""), ("truncated", first["answer"][: len(first["answer"]) // 2])]
    cases = [case for case, _ in known]

    def call(column: int) -> list[float | None]:
        table = rewards(
            [first["prompt"]] * len(known),
            [as_completion(first["prompt"], text) for _, text in known],
            completion_ids=[[0] * len(text) for _, text in known],
            prompt_ids=[first["prompt_id"]] * len(known),
            columns={name: [value] * len(known) for name, value in first.items() if name not in NOT_COLUMNS},
        )
        return [None if score != score else score for score in table.scores[:, column].tolist()]

    return [
        {
            "name": reward.name,
            "call": lambda column=column: call(column),
            "cases": cases,
            "judges": bool(JUDGED_BY & {*reward.required, *reward.optional}),
        }
        for column, reward in enumerate(rewards.rewards)
    ]


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
