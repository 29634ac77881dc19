"""All reward functions of a run behind one call."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lit_rlhf.rewards.resolve import RewardSpec, resolve
from lit_rlhf.rewards.scoring import OnError, RewardBatch, score_batch
from lit_rlhf.rewards.text import Completion
from lit_rlhf.rewards.wording import describe_ids
from lit_rlhf_callbacks.errors import UserError


@dataclass(frozen=True)
class RewardTable:
    """The scores of N completions by K functions.

    Attributes:
        scores: [N, K] float32; nan where a function does not apply (returned None) or failed.
        total: [N] float32; the weighted sum over the functions that apply; nan in rows that are not valid, so that
            a row used by mistake shows.
        valid_mask: [N] bool; False where no function applies or one has failed: drop the row.
        num_failed: Rows dropped because a function failed on them (``on_error="skip"``).
        why_invalid: The first reason why a row is not valid, with the prompt ids of all such rows; None: all are.
    """

    scores: Tensor
    total: Tensor
    valid_mask: Tensor
    num_failed: int
    why_invalid: str | None = None


class RewardSet:
    """Reward functions with weights, called together on a batch of completions.

    They run in the calling thread, which should be the main one (math-verify sets alarm signals), each under a time
    limit (`watchdog.call_with_timeout`).

    >>> def is_short(completions):
    ...     return [float(len(text) < 2) for text in completions]
    >>> rewards = RewardSet(["exact_match", {"function": is_short, "weight": 0.5}])
    >>> rewards.names
    ['exact_match', 'is_short']
    >>> prompts, completions = ["1+1=", "1+2="], ["2", "33"]
    >>> table = rewards(
    ...     prompts, completions, completion_ids=[[5], [6, 6]], prompt_ids=[0, 1], columns={"answer": ["2", "3"]}
    ... )
    >>> table.scores.tolist(), table.total.tolist()
    ([[1.0, 1.0], [0.0, 0.0]], [1.5, 0.0])
    """

    def __init__(
        self,
        specs: Sequence[RewardSpec] | str | Callable[..., Any],
        *,
        timeout_s: float = 60.0,
        on_error: OnError = "raise",
    ) -> None:
        """Resolve the functions.

        Args:
            specs: One per function (see `resolve.RewardSpec`); a single name or function stands for a list of one.
            timeout_s: Seconds that one call of one function may take.
            on_error: What to do with a row on which a function raises, hangs or returns no finite number: stop with an
                error, or drop the row and count it. To find such rows, a function that raises is called again row by
                row, so one that compares the rows of a batch should not raise.

        Raises:
            UserError: A spec cannot be resolved, or a setting is out of range.
        """
        if timeout_s <= 0:
            raise UserError(f"the reward functions' timeout_s must be above 0 seconds, not {timeout_s}")
        if on_error not in ("raise", "skip"):
            raise UserError(f"the reward functions' on_error must be raise or skip, not {on_error!r}")
        self.rewards = resolve([specs] if isinstance(specs, str) or callable(specs) else specs)
        self.timeout_s = timeout_s
        self.on_error = on_error
        self._warned: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The functions' names, in the order of the score columns."""
        return [reward.name for reward in self.rewards]

    def check_columns(self, available: set[str]) -> None:
        """See at the start whether the data has what the functions need.

        Args:
            available: Names of the data's columns.

        Raises:
            UserError: A function takes an argument without default that is no column.
        """
        for reward in self.rewards:
            for name in reward.missing(available):
                raise UserError(
                    f"reward function '{reward.name}' needs '{name}', which is neither a column of the data "
                    f"(columns: {', '.join(sorted(available)) or 'none'}) nor set in the config"
                )

    def __call__(
        self,
        prompts: list[Any],
        completions: list[Completion],
        *,
        completion_ids: list[list[int]],
        prompt_ids: list[int],
        columns: dict[str, list[Any]],
    ) -> RewardTable:
        """Score N completions.

        Args:
            prompts: N prompts in TRL's form: text or messages.
            completions: N completions in TRL's form: text, or one assistant message in a list.
            completion_ids: Token ids of each completion.
            prompt_ids: Id of each row's prompt, for messages; functions may take it as ``prompt_id``.
            columns: The data's other columns, one value per row.

        Returns:
            Scores, totals and which rows to keep.

        Raises:
            UserError: A function failed (``on_error="raise"``).
        """
        own = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
        batch = RewardBatch(prompt_ids, {**columns, **own, "prompt_id": prompt_ids})
        scores = torch.full((len(prompt_ids), len(self.rewards)), torch.nan, dtype=torch.float32)  # [N, K]
        failures: dict[int, str] = {}
        for k, reward in enumerate(self.rewards):
            values, failed = score_batch(reward, batch, timeout_s=self.timeout_s, on_error=self.on_error)
            given = [torch.nan if value is None else value for value in values]
            scores[:, k] = torch.tensor(given, dtype=torch.float32)
            reasons = {row: f"reward function '{reward.name}' {reason}" for row, reason in failed.items()}
            self._warn_once(reward.name, reasons, prompt_ids)
            failures |= reasons
        valid_mask = ~scores.isnan().all(dim=1)  # [N]
        valid_mask[list(failures)] = False
        weights = torch.tensor([reward.weight for reward in self.rewards], dtype=torch.float64)
        why = _why_invalid(valid_mask, prompt_ids, failures)
        total = (scores.double().nan_to_num(nan=0.0) @ weights).float()  # [N]
        return RewardTable(scores, total.masked_fill(~valid_mask, torch.nan), valid_mask, len(failures), why)

    def _warn_once(self, name: str, reasons: dict[int, str], prompt_ids: list[int]) -> None:
        if reasons and name not in self._warned:
            self._warned.add(name)
            ids = describe_ids(prompt_ids[row] for row in reasons)
            warnings.warn(
                f"{next(iter(reasons.values()))} ({ids}); such rows are dropped and counted, and this is said once",
                stacklevel=4,
            )


def _why_invalid(valid_mask: Tensor, prompt_ids: list[int], failures: dict[int, str]) -> str | None:
    invalid = (~valid_mask).nonzero().flatten().tolist()
    if not invalid:
        return None
    why = next(iter(failures.values()), "every reward function returned None, which means that it does not apply")
    return f"{why} ({describe_ids(prompt_ids[row] for row in invalid)})"
