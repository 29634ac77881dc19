"""The built-in tasks: rows of a prompt and its right answer, made on the spot from a seed.

Every task has a ``train`` and a held-out ``eval`` split that share no prompt. Pure Python, so that listing and reading
tasks costs nothing.
"""

import difflib
import inspect
import random
from collections.abc import Callable, Iterable
from typing import Any, get_args

from lit_rlhf.builtin.words import MAX_LENGTH, MIN_LENGTH, Split, vocabulary

Row = dict[str, Any]

_SPLITS = get_args(Split)
_ARITHMETIC_SPLIT_SEED = 7
_ARITHMETIC_EVAL_PER_OPERATION = 21


def load_task(name: str, split: str, **options: Any) -> list[Row]:
    """Make the rows of one split of a built-in task.

    Args:
        name: A key of :data:`TASKS`.
        split: ``"train"`` or ``"eval"`` (held out: no prompt in common with ``"train"``, whatever the options).
        **options: The task's own settings, see the functions in :data:`TASKS`.

    Returns:
        Rows ``{"prompt": [{"role": ..., "content": ...}, ...], "answer": str}``.

    Raises:
        ValueError: An unknown task, split or option, or a value out of range; one line with the closest names.

    Example:
        >>> load_task("reverse_words", "train", num_rows=1, min_length=4, max_length=4)[0].keys()
        dict_keys(['prompt', 'answer'])
    """
    _check_known("built-in task", name, TASKS)
    _check_known(f"split of the built-in task '{name}'", split, _SPLITS)
    known_options = [key for key in inspect.signature(TASKS[name]).parameters if key != "split"]
    for option in options:
        _check_known(f"option of the built-in task '{name}'", option, known_options)
    return TASKS[name](split, **options)


def reverse_words(
    split: Split, *, min_length: int = 3, max_length: int = 8, num_rows: int | None = None, seed: int = 0
) -> list[Row]:
    """Write a word backwards: ``reverse abcd`` -> ``dcba``.

    Args:
        split: ``"train"`` or ``"eval"``; the words of the two are disjoint (see :mod:`lit_rlhf.builtin.words`).
        min_length: Letters of the shortest words.
        max_length: Letters of the longest words: the difficulty knob.
        num_rows: Number of rows, of ``"eval"`` at most; None gives the whole split (some 38,700 and 1,580 rows at the
            default lengths).
        seed: Decides the order, and so which rows a smaller ``num_rows`` keeps.

    Returns:
        Rows with ``prompt`` and ``answer``, shuffled.

    Raises:
        ValueError: Lengths out of range, or more rows asked for than there are.
    """
    if not MIN_LENGTH <= min_length <= max_length <= MAX_LENGTH:
        raise ValueError(
            f"reverse_words: min_length={min_length} and max_length={max_length} must satisfy "
            f"{MIN_LENGTH} <= min_length <= max_length <= {MAX_LENGTH}"
        )
    words = [word for length in range(min_length, max_length + 1) for word in vocabulary(length, split)]
    rows = [{"prompt": [{"role": "user", "content": f"reverse {word}"}], "answer": word[::-1]} for word in words]
    return _shuffled("reverse_words", split, rows, num_rows, seed)


def arithmetic(split: Split, *, num_rows: int | None = None, seed: int = 0) -> list[Row]:
    """Answer a sum, difference or product of two one-digit numbers: ``What is 3 + 4?`` -> ``7``.

    Meant for a pretrained model such as SmolLM2; the embedded one cannot do it. There are 243 prompts in all (1 to 9,
    three operations): 180 for training and 63 held out, 21 of each operation.

    Args:
        split: ``"train"`` or ``"eval"``, disjoint.
        num_rows: Number of rows, of ``"eval"`` at most; None gives the whole split.
        seed: Decides the order, and so which rows a smaller ``num_rows`` keeps. The split does not depend on it.

    Returns:
        Rows with ``prompt`` (a system and a user message) and ``answer`` (a whole number as text), shuffled.

    Raises:
        ValueError: More rows asked for than there are.
    """
    results: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
    }
    rows = []
    rng = random.Random(_ARITHMETIC_SPLIT_SEED)
    for operation, result in results.items():
        pairs = [(a, b) for a in range(1, 10) for b in range(1, 10)]
        rng.shuffle(pairs)
        cut = _ARITHMETIC_EVAL_PER_OPERATION
        for a, b in pairs[:cut] if split == "eval" else pairs[cut:]:
            prompt = [
                {"role": "system", "content": "Answer with one number."},
                {"role": "user", "content": f"What is {a} {operation} {b}?"},
            ]
            rows.append({"prompt": prompt, "answer": str(result(a, b))})
    return _shuffled("arithmetic", split, rows, num_rows, seed)


TASKS: dict[str, Callable[..., list[Row]]] = {"reverse_words": reverse_words, "arithmetic": arithmetic}


def _shuffled(name: str, split: str, rows: list[Row], num_rows: int | None, seed: int) -> list[Row]:
    # One setting makes both splits: what there is of the smaller one is enough for it.
    if num_rows is not None and (num_rows < 1 or (split == "train" and num_rows > len(rows))):
        raise ValueError(
            f"{name}: num_rows={num_rows}, but the '{split}' split with these settings has 1 to {len(rows)} rows"
        )
    random.Random(seed).shuffle(rows)
    return rows[:num_rows]


def _check_known(kind: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"unknown {kind}: '{name}'{hint} (known: {', '.join(known)})")
