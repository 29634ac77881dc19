"""Scoring a batch with one reward function: within its time limit, trusting no answer, blaming the right rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lit_rlhf.rewards.reward import Reward
from lit_rlhf.rewards.watchdog import CallTimeoutError, call_with_timeout
from lit_rlhf.rewards.wording import describe_error, describe_ids, place_in_traceback, shorten
from lit_rlhf_callbacks.errors import UserError

OnError = Literal["raise", "skip"]

MAX_SCORE = 3.4e38
"""Scores are kept as float32."""

MAX_HANGS = 3
"""Under ``skip``, a function that hangs on so many rows of one batch is broken rather than unlucky."""


@dataclass(frozen=True)
class RewardBatch:
    """What is to be scored.

    Attributes:
        prompt_ids: One id per row.
        offered: Name to one value per row: the columns, and what `reward.OFFERED` lists.
    """

    prompt_ids: list[int]
    offered: dict[str, list[Any]]

    def row(self, index: int) -> "RewardBatch":
        """The batch of one row.

        Args:
            index: Which.

        Returns:
            A batch of length one.
        """
        return RewardBatch([self.prompt_ids[index]], {name: [values[index]] for name, values in self.offered.items()})


class RewardCallError(Exception):
    """A call gave nothing that can be used; the message says why, on one line, and leaves out by whom.

    Attributes:
        kind: What happened.
    """

    def __init__(self, message: str, kind: Literal["raised", "hung", "malformed"]) -> None:
        super().__init__(message)
        self.kind = kind


def score_batch(
    reward: Reward, batch: RewardBatch, *, timeout_s: float, on_error: OnError
) -> tuple[list[float | None], dict[int, str]]:
    """Score every row with one function.

    Args:
        reward: The function.
        batch: N rows.
        timeout_s: Seconds that one call may take.
        on_error: Whether a row that cannot be scored is an error or is reported in the second return value.

    Returns:
        N scores (None where the function does not apply or has failed), and by row why it failed.

    Raises:
        UserError: A row cannot be scored and ``on_error`` is ``"raise"``, or the function hangs row after row.
    """
    failures: dict[int, str] = {}
    try:
        values = call_reward(reward, batch, timeout_s)
    except RewardCallError as error:
        if on_error == "raise":
            raise _blame(reward, batch, error, timeout_s) from (error.__cause__ or error)
        values, failures = _score_by_row(reward, batch, timeout_s)
    for row, value in enumerate(values):
        fault = find_fault(value)
        if fault:
            failures[row] = f"returned {fault}"
            values[row] = None
    if failures and on_error == "raise":
        reason = next(iter(failures.values()))
        raise UserError(_error_line(reward, reason, [batch.prompt_ids[row] for row in failures]))
    return [None if value is None else float(value) for value in values], failures


def call_reward(reward: Reward, batch: RewardBatch, timeout_s: float) -> list[Any]:
    """Call a function on a batch.

    Args:
        reward: The function.
        batch: N rows.
        timeout_s: Seconds the call may take.

    Returns:
        N values, not yet looked at.

    Raises:
        RewardCallError: It raised, overran the time limit or returned something other than N values.
    """
    arguments = reward.arguments(batch.offered)
    try:
        result = call_with_timeout(
            lambda: reward.function(**arguments),
            timeout_s,
            what=f"reward function '{reward.name}' ({describe_ids(batch.prompt_ids)})",
            file=reward.file,
        )
    except CallTimeoutError as error:
        raise RewardCallError(str(error), "hung") from None
    except Exception as error:
        place = place_in_traceback(error.__traceback__, lambda file: file == reward.file)
        raise RewardCallError(f"raised {describe_error(error)}{place}", "raised") from error
    values = _to_python(result)
    if not isinstance(values, Sequence) or isinstance(values, str):
        message = f"returned {type(result).__name__}, not a list with one number or None per completion"
        raise RewardCallError(message, "malformed")
    if len(values) != len(batch.prompt_ids):
        message = f"returned {len(values)} scores for {len(batch.prompt_ids)} completions"
        raise RewardCallError(message, "malformed")
    return [_to_python(value) for value in values]


def _to_python(value: Any) -> Any:
    """Tensors and arrays as lists, their scalars as numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def find_fault(value: object) -> str:
    """Say what is wrong with one value.

    Args:
        value: What a function returned for one row.

    Returns:
        The end of "returned ...", or "" when the value is None or a finite number.

    >>> find_fault(float("nan")), find_fault("1.0"), find_fault(True), find_fault(None)
    ('nan', "'1.0', which is no number", '', '')
    """
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return f"{shorten(repr(value))}, which is no number"
    return "" if -MAX_SCORE <= value <= MAX_SCORE else shorten(str(value))  # nan fails the comparison too


def _score_by_row(reward: Reward, batch: RewardBatch, timeout_s: float) -> tuple[list[Any], dict[int, str]]:
    """After a batch has failed as a whole: score each row by itself, to drop only those that are to blame."""
    values: list[Any] = []
    failures: dict[int, str] = {}
    num_hangs = 0
    for row in range(len(batch.prompt_ids)):
        try:
            values += call_reward(reward, batch.row(row), timeout_s)
        except RewardCallError as error:
            values.append(None)
            failures[row] = str(error)
            num_hangs += error.kind == "hung"
            if num_hangs == MAX_HANGS:
                reason = f"{error}, {MAX_HANGS} times in one batch"
                raise UserError(_error_line(reward, reason, [batch.prompt_ids[row] for row in failures])) from error
    return values, failures


def _blame(reward: Reward, batch: RewardBatch, error: RewardCallError, timeout_s: float) -> UserError:
    """The error to stop with. Which row made a batch raise is found by calling the rows one by one."""
    if error.kind == "raised":
        for row in range(len(batch.prompt_ids)):
            try:
                call_reward(reward, batch.row(row), timeout_s)
            except RewardCallError as row_error:
                return UserError(_error_line(reward, str(row_error), [batch.prompt_ids[row]]))
    return UserError(_error_line(reward, str(error), batch.prompt_ids))


def _error_line(reward: Reward, reason: str, prompt_ids: list[int]) -> str:
    return (
        f"reward function '{reward.name}' {reason} ({describe_ids(prompt_ids)}); "
        f"mend the function, or set reward_on_error to skip to drop such rows"
    )
