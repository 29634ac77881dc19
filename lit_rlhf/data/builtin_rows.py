"""Tasks as offline data: every DataModule has a default that needs no file and no network."""

import random
from collections.abc import Callable, Sequence
from typing import Literal

from lit_rlhf.data.files import Row

Kind = Literal["supervised", "paired", "ranked", "unpaired", "stepwise"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def as_kind(rows: Sequence[Row], kind: Kind, *key: int | str) -> list[Row]:
    """Give rows of a prompt and its right answer the columns of a kind; wrong answers are seeded corruptions.

    Args:
        rows: With ``prompt`` and ``answer``.
        kind: Which columns to add.
        key: What the corruptions depend on, together with a row's number.

    Returns:
        New rows.

    >>> [row] = as_kind([{"prompt": "reverse abc", "answer": "cba"}], "paired", 0)
    >>> row["chosen"] == row["answer"] != row["rejected"]
    True
    """
    return [_MAKERS[kind](row, random.Random(repr((*key, number)))) for number, row in enumerate(rows)]


def corrupt(answer: str, rng: random.Random) -> str:
    """Return a wrong answer close to the right one: two characters swapped, one replaced, dropped or doubled.

    >>> corrupt("stone", random.Random(0)) != "stone"
    True
    """
    while True:
        place = rng.randrange(len(answer))
        other = rng.choice("0123456789" if answer[place].isdigit() else _LETTERS)
        before, here, after = answer[:place], answer[place], answer[place + 1 :]
        swapped = before + after[:1] + here + after[1:]
        wrong = rng.choice([before + other + after, before + here + here + after, before + after, swapped])
        if wrong not in ("", answer):
            return wrong


def _supervised(row: Row, rng: random.Random) -> Row:
    return {**row, "completion": row["answer"]}


def _paired(row: Row, rng: random.Random) -> Row:
    return {**row, "chosen": row["answer"], "rejected": corrupt(row["answer"], rng)}


def _ranked(row: Row, rng: random.Random) -> Row:
    completions = [row["answer"]]
    while len(completions) < 4:  # each worse than the one before
        wrong = corrupt(completions[-1], rng)
        if wrong not in completions:
            completions.append(wrong)
    return {**row, "completions": completions}


def _unpaired(row: Row, rng: random.Random) -> Row:
    good = rng.random() < 0.5
    return {**row, "completion": row["answer"] if good else corrupt(row["answer"], rng), "label": good}


def _stepwise(row: Row, rng: random.Random) -> Row:
    """Letter by letter: a step is right as long as all before it are."""
    answer = row["answer"]
    written = answer if rng.random() < 0.5 else corrupt(answer, rng)
    labels = [answer.startswith(written[: place + 1]) for place in range(len(written))]
    return {**row, "completions": list(written), "labels": labels}


_MAKERS: dict[Kind, Callable[[Row, random.Random], Row]] = {
    "supervised": _supervised,
    "paired": _paired,
    "ranked": _ranked,
    "unpaired": _unpaired,
    "stepwise": _stepwise,
}
