"""TRL's columns, in every form, become records: a prompt and what may follow it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.cells import (
    Turns,
    list_of,
    messages_of,
    number_of,
    text_of,
    truth_of,
    turns_of,
    value_of,
)
from lit_rlhf.data.chat import Message
from lit_rlhf.data.files import Row
from lit_rlhf.data.implicit import check_same_prompt, split_conversations, split_texts

Mask = Literal["auto", "assistant_only", "completion_only", "none"]
PreferenceKind = Literal["paired", "ranked", "unpaired"]


@dataclass(frozen=True, slots=True)
class Record:
    """One usable row, before it is tokenised."""

    prompt: Turns
    """What is conditioned on; empty where all of the text or conversation is to be learned from."""

    completions: Sequence[Turns]
    """One, or chosen and rejected, or several, best first; in the prompt's form (text, or messages)."""

    label: float | None = None
    """The margin of a pair; 1 or 0 for a good or bad unpaired completion."""

    step_labels: Sequence[float] = ()
    """Stepwise only: one per step; the steps are the completions."""

    all_tokens: bool = False
    """Whether every token of a conversation counts, not only the assistant's."""


def supervised_record(row: Row, mask: Mask) -> Record:
    """Read ``messages``, ``prompt`` and ``completion``, or ``text``.

    Args:
        row: As read.
        mask: Which tokens are to count (see `SupervisedData.mask`).

    Raises:
        RowError: If a column is missing, or does not hold what it should.
    """
    conversation = next((column for column in ("messages", "conversations") if column in row), None)
    if conversation is not None and "completion" not in row:
        return _conversation(messages_of(value_of(row, conversation), conversation), mask, conversation)
    if "text" in row and "prompt" not in row:
        if mask in ("assistant_only", "completion_only"):
            raise RowError("has no completion of its own", f"data.mask: {mask} needs messages or a prompt", "text")
        return Record("", [text_of(value_of(row, "text"), "text")], all_tokens=True)
    if not row.keys() & {"prompt", "completion"}:
        raise RowError(
            "has none of the columns messages, prompt and completion, or text",
            f"it has {', '.join(row) or 'none'}: rename them, or map them with data.columns",
        )
    prompt, [completion] = _after_prompt(_prompt_of(row), [_completion_of(row, "completion")], ["completion"])
    if mask == "none" and not isinstance(completion, str):
        return Record([], [[*prompt, *completion]], all_tokens=True)
    if mask == "none":
        return Record("", [f"{prompt}{completion}"], all_tokens=True)
    return Record(prompt, [completion])


def paired_record(row: Row) -> Record:
    """Read ``chosen`` and ``rejected`` with or without a ``prompt``, and a ``margin`` if there is one.

    Raises:
        RowError: If a column is missing or of the wrong type, or chosen and rejected are the same.
    """
    names = ("chosen", "rejected")
    chosen, rejected = (_completion_of(row, name) for name in names)
    if chosen == rejected:
        raise RowError("is the same as 'chosen'", "there is nothing to prefer: correct or remove the row", "rejected")
    if type(chosen) is not type(rejected):
        raise RowError("has another form than 'chosen'", "write both as text or both as messages", "rejected")
    margin = number_of(row["margin"], "margin") if row.get("margin") is not None else None
    if not isinstance(chosen, str) and not isinstance(rejected, str) and chosen[0]["role"] != "assistant":
        check_same_prompt(row, chosen)
        return Record(*split_conversations(chosen, rejected), label=margin)
    if "prompt" not in row and isinstance(chosen, str) and isinstance(rejected, str):
        return Record(*split_texts(chosen, rejected), label=margin)
    return Record(*_after_prompt(_prompt_of(row), [chosen, rejected], names), label=margin)


def ranked_record(row: Row) -> Record:
    """Read a ``prompt`` and its ``completions``, best first or with ``scores``; of equal scores the first is kept.

    Raises:
        RowError: If a column is missing or of the wrong type, or there are not two different places in the ranking.
    """
    values = list_of(value_of(row, "completions"), "completions", at_least=2)
    names = [f"completions[{place}]" for place in range(len(values))]
    completions = [turns_of(value, name) for value, name in zip(values, names, strict=True)]
    if row.get("scores") is not None:
        scores = list_of(row["scores"], "scores", at_least=2)
        if len(scores) != len(completions):
            raise RowError("has another length than 'completions'", "give one score per completion", "scores")
        by_score: dict[float, Turns] = {}
        for place, (score, completion) in enumerate(zip(scores, completions, strict=True)):
            by_score.setdefault(number_of(score, f"scores[{place}]"), completion)
        completions = [by_score[score] for score in sorted(by_score, reverse=True)]
        if len(completions) < 2:
            raise RowError("are all equal", "there is nothing to rank: remove the row", "scores")
    if any(completion in completions[:place] for place, completion in enumerate(completions)):
        raise RowError("holds a completion twice", "keep one of them", "completions")
    return Record(*_after_prompt(_prompt_of(row), completions, names[: len(completions)]))


def unpaired_record(row: Row) -> Record:
    """Read a ``prompt``, a ``completion`` and whether it is good: ``label``.

    Raises:
        RowError: If a column is missing or of the wrong type.
    """
    prompt, completions = _after_prompt(_prompt_of(row), [_completion_of(row, "completion")], ["completion"])
    return Record(prompt, completions, label=float(truth_of(value_of(row, "label"), "label")))


def stepwise_record(row: Row) -> Record:
    """Read a ``prompt``, its ``completions`` (the steps, as text) and their ``labels``.

    Raises:
        RowError: If a column is missing or of the wrong type, or there are not as many labels as steps.
    """
    values = list_of(value_of(row, "completions"), "completions", at_least=1)
    steps: list[Turns] = [text_of(value, f"completions[{place}]") for place, value in enumerate(values)]
    labels = list_of(value_of(row, "labels"), "labels", at_least=1)
    if len(labels) != len(steps):
        raise RowError("has another length than 'completions'", "give one label per step", "labels")
    step_labels = [_step_label(label, f"labels[{place}]") for place, label in enumerate(labels)]
    return Record(_prompt_of(row), steps, step_labels=step_labels)


def preference_kind(row: Row) -> PreferenceKind | None:
    """Tell what a row's columns make it; None where they make it nothing.

    >>> preference_kind({"prompt": "a", "chosen": "b", "rejected": "c"})
    'paired'
    """
    if row.keys() & {"chosen", "rejected"}:
        return "paired"
    if "completions" in row:
        return "ranked"
    return "unpaired" if row.keys() >= {"completion", "label"} else None


def _step_label(value: object, column: str) -> float:
    if isinstance(value, bool):
        return float(value)
    number = number_of(value, column)
    if number not in (-1, 0, 1):
        raise RowError("is no step label", "write true or false, or 1, 0 and -1 for good, neutral and bad", column)
    return number


def _prompt_of(row: Row) -> Turns:
    prompt = turns_of(value_of(row, "prompt"), "prompt")
    if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
        raise RowError("ends with an assistant message", "the prompt ends where the assistant begins", "prompt")
    if not isinstance(prompt, str):
        _check_beginning(prompt, "prompt")
    return prompt


def _completion_of(row: Row, column: str) -> Turns:
    completion = turns_of(value_of(row, column), column)
    if not isinstance(completion, str) and completion[-1]["role"] != "assistant":
        raise RowError("does not end with an assistant message", "the last message is what is learned", column)
    return completion


def _after_prompt(prompt: Turns, completions: Sequence[Turns], columns: Sequence[str]) -> tuple[Turns, list[Turns]]:
    """Bring completions into the prompt's form: a text after a conversation is an assistant message."""
    result: list[Turns] = []
    for completion, column in zip(completions, columns, strict=True):
        if isinstance(prompt, str) and not isinstance(completion, str):
            raise RowError("is a conversation, but 'prompt' is text", "write both the same way", column)
        if not isinstance(prompt, str) and isinstance(completion, str):
            completion = [{"role": "assistant", "content": completion}]
        if not isinstance(completion, str) and completion[0]["role"] != "assistant":
            raise RowError("does not begin with an assistant message", "it follows the prompt", column)
        result.append(completion)
    return prompt, result


def _conversation(messages: list[Message], mask: Mask, column: str) -> Record:
    if messages[-1]["role"] != "assistant":
        raise RowError("does not end with an assistant message", "the last message is what is learned", column)
    _check_beginning(messages, column)
    if mask == "completion_only":
        return Record(messages[:-1], [messages[-1:]])
    return Record([], [messages], all_tokens=mask == "none")


def _check_beginning(messages: list[Message], column: str) -> None:
    if messages[0]["role"] == "assistant":
        raise RowError("begins with an assistant message", "put a user or system message before it", column)
