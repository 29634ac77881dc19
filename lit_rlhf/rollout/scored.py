"""Completions with their texts and rewards: what a rollout is before it becomes training data."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lit_rlhf.data.chat import as_completion, render_prompt
from lit_rlhf.rewards import RewardSet, RewardTable
from lit_rlhf.rollout.protocol import Completion, NoiseKey, Prompt, Sampler
from lit_rlhf.rollout.sampling import Sampling

Row = dict[str, Any]
NOT_COLUMNS = {"prompt", "prompt_id"}  # of a data row: what reward functions get by other names


@dataclass(kw_only=True)
class ScoredRollout:
    """N scored completions on this rank.

    Attributes:
        completions: What the sampler made.
        texts: Each decoded without special tokens.
        order: Each one's place in the phase: ``prompt position * group_size + sample``.
        scores: Each reward function's score, ``[N, K]``; NaN where it does not apply.
        rewards: The weighted sum, ``[N]``.
        valid_mask: False where no function applied or one failed, ``[N]``.
        reward_seconds: How long the reward functions took.
        why_invalid: Why a completion has no reward, where one has none.
    """

    completions: list[Completion]
    texts: list[str]
    order: list[int]
    scores: Tensor
    rewards: Tensor
    valid_mask: Tensor
    reward_seconds: float
    why_invalid: str | None = None

    def __len__(self) -> int:
        return len(self.completions)

    @property
    def prompt_ids(self) -> Tensor:
        """Which prompt each belongs to, ``[N]``."""
        return torch.tensor([completion.prompt_id for completion in self.completions], dtype=torch.long)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion, ``[N]``."""
        return torch.tensor([len(completion.ids) for completion in self.completions], dtype=torch.long)

    @property
    def truncated_mask(self) -> Tensor:
        """Whether the token limit ended it, ``[N]``."""
        return torch.tensor([completion.finish == "length" for completion in self.completions], dtype=torch.bool)

    def keep(self, mask: Tensor) -> "ScoredRollout":
        """Return the rows where ``mask`` holds."""
        rows = mask.nonzero().flatten().tolist()
        return ScoredRollout(
            completions=[self.completions[row] for row in rows],
            texts=[self.texts[row] for row in rows],
            order=[self.order[row] for row in rows],
            scores=self.scores[rows],
            rewards=self.rewards[rows],
            valid_mask=self.valid_mask[rows],
            reward_seconds=self.reward_seconds,
            why_invalid=self.why_invalid,
        )

    def __add__(self, other: "ScoredRollout") -> "ScoredRollout":
        return ScoredRollout(
            completions=self.completions + other.completions,
            texts=self.texts + other.texts,
            order=self.order + other.order,
            scores=torch.cat([self.scores, other.scores]),
            rewards=torch.cat([self.rewards, other.rewards]),
            valid_mask=torch.cat([self.valid_mask, other.valid_mask]),
            reward_seconds=self.reward_seconds + other.reward_seconds,
            why_invalid=self.why_invalid or other.why_invalid,
        )


def tokenise(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row]) -> list[Prompt]:
    """Render the prompts of data rows."""
    return [
        Prompt(row["prompt_id"], render_prompt(tokenizer, row["prompt"], f"prompt {row['prompt_id']}")) for row in rows
    ]


@dataclass(kw_only=True)
class Scorer:
    """Sample completions of data rows and score them.

    Attributes:
        sampler: Generates.
        rewards: Scores.
        tokenizer: The policy's.
        sampling: How to sample.
    """

    sampler: Sampler
    rewards: RewardSet
    tokenizer: PreTrainedTokenizerBase
    sampling: Sampling

    def __call__(self, rows: Sequence[Row], positions: Sequence[int], group_size: int, key: NoiseKey) -> ScoredRollout:
        """Return ``P * group_size`` scored completions, by prompt, then sample.

        Args:
            rows: Data rows, P of them: ``prompt``, ``prompt_id`` and the columns that reward functions read.
            positions: Each prompt's place in the phase, over all ranks, ``[P]``.
            group_size: Completions per prompt.
            key: What the noise depends on.
        """
        completions = self.sampler.generate(tokenise(self.tokenizer, rows), group_size, self.sampling, key)
        texts = self.tokenizer.batch_decode([c.ids for c in completions], skip_special_tokens=True)
        start = perf_counter()
        table = self._score([row for row in rows for _ in range(group_size)], completions, texts)
        return ScoredRollout(
            completions=completions,
            texts=texts,
            order=[position * group_size + sample for position in positions for sample in range(group_size)],
            scores=table.scores,
            rewards=table.total,
            valid_mask=table.valid_mask,
            reward_seconds=perf_counter() - start,
            why_invalid=table.why_invalid,
        )

    def _score(self, rows: Sequence[Row], completions: Sequence[Completion], texts: Sequence[str]) -> RewardTable:
        if not rows:  # a rank without prompts; a user's function need not bear an empty batch without columns
            no_rows = torch.zeros(0, dtype=torch.float32)
            return RewardTable(no_rows.reshape(0, len(self.rewards.names)), no_rows, no_rows.bool(), num_failed=0)
        names = {name for row in rows for name in row} - NOT_COLUMNS
        return self.rewards(
            [row["prompt"] for row in rows],
            [as_completion(row["prompt"], text) for row, text in zip(rows, texts, strict=True)],
            completion_ids=[completion.ids for completion in completions],
            prompt_ids=[row["prompt_id"] for row in rows],
            columns={name: [row.get(name) for row in rows] for name in sorted(names)},
        )
