"""Tasks of reasoning-gym (extra ``tasks``): rows to train on and the reward that scores them."""

import ast
import functools
import hashlib
import importlib.util
from dataclasses import dataclass, fields
from typing import Any, Literal

from lit_rlhf.rewards.text import Completion, check_tags, completion_text, tagged_text
from lit_rlhf.rewards.wording import describe_error, did_you_mean
from lit_rlhf_callbacks.errors import UserError

EVAL_SHARE = 4
"""One question in four is held out."""

MAX_TRIES = 50
"""Questions generated per row wanted, before the task is found to have too few different ones."""


def load_reasoning_gym(
    dataset_name: str, split: Literal["train", "eval"], size: int, seed: int, **options: Any
) -> list[dict[str, Any]]:
    """Generate the rows of a reasoning-gym task.

    Different seeds alone do not hold questions out: of the sums of two digits there are a few hundred, and both
    splits would hold most of them. So a question belongs to one split for good, by a hash of its text, whatever the
    seed and size. The splits' generator seeds are disjoint as well.

    Args:
        dataset_name: For example ``"chain_sum"``.
        split: ``"train"`` or ``"eval"``.
        size: Number of rows.
        seed: Which questions of the split.
        **options: The task's own settings, for example ``min_terms=2``.

    Returns:
        Rows with ``prompt`` (messages), ``answer`` (text or None), and ``rg_dataset``, ``rg_options``, ``rg_entry``:
        texts from which the reward function ``reasoning_gym`` rebuilds the entry exactly (JSON would turn tuples into
        lists, and ``rearc`` then gives its own answer 0.05).

    Raises:
        UserError: reasoning-gym is not installed, has no such task or option, or the task has too few questions.
    """
    where = f"reasoning_gym:{dataset_name}"
    if split not in ("train", "eval"):
        raise UserError(f"{where}: split must be train or eval, not {split!r}")
    num_tries = size * MAX_TRIES
    dataset = _create_dataset(dataset_name, where, size=num_tries, seed=_generator_seed(split, seed), **options)
    rows: list[dict[str, Any]] = []
    for index in range(num_tries):
        if len(rows) == size:
            break
        entry = _plain(dataset[index])
        if _is_held_out(entry["question"]) == (split == "eval"):
            rows.append(
                {
                    "prompt": [{"role": "user", "content": entry["question"]}],
                    "answer": entry["answer"],
                    "rg_dataset": dataset_name,
                    "rg_options": repr(options),
                    "rg_entry": repr(entry),
                }
            )
    if len(rows) < size:
        raise UserError(
            f"{where}: {num_tries} questions gave only {len(rows)} of the {size} rows wanted for the {split} split; "
            f"the task has too few different questions: make it harder"
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class ReasoningGym:
    """The task's own score of the completion's answer, from 0 to 1; for rows made by `load_reasoning_gym`.

    Many tasks give partial credit, so pass@1 counts a score as right from 0.99 on (`is_correct`). A row that is not
    reasoning-gym's (``rg_dataset`` is None) gets None: this function does not apply to it.
    """

    tag: str | None = None
    """Score only what stands in the last ``<tag>...</tag>``; a completion without it gets 0."""

    def __post_init__(self) -> None:
        """Refuse to start without the package, or with a tag that no completion could have."""
        if self.tag is not None:
            check_tags([self.tag], "reasoning_gym")
        _require_reasoning_gym("reward function 'reasoning_gym'")

    def __call__(
        self,
        completions: list[Completion],
        rg_dataset: list[str | None],
        rg_options: list[str | None],
        rg_entry: list[str | None],
    ) -> list[float | None]:
        """Score each completion.

        Args:
            completions: What the model wrote.
            rg_dataset: Name of each row's task.
            rg_options: Its settings, as text.
            rg_entry: The whole entry, as text.

        Returns:
            A number from 0 to 1, or None, per row.
        """
        return [
            self._score(completion_text(completion), dataset_name, options, entry)
            for completion, dataset_name, options, entry in zip(
                completions, rg_dataset, rg_options, rg_entry, strict=True
            )
        ]

    def _score(self, text: str, dataset_name: str | None, options: str | None, entry: str | None) -> float | None:
        if dataset_name is None or options is None or entry is None:
            return None
        answer = tagged_text(text, self.tag)
        if answer is None:
            return 0.0
        return float(_scorer(dataset_name, options).score_answer(answer, ast.literal_eval(entry)))


@functools.lru_cache(maxsize=64)
def _scorer(dataset_name: str, options: str) -> Any:
    """The data set that scores a task's entries; how it generates does not matter here."""
    where = f"reward function 'reasoning_gym' ({dataset_name})"
    return _create_dataset(dataset_name, where, size=1, seed=0, **ast.literal_eval(options))


def _create_dataset(dataset_name: str, where: str, **settings: Any) -> Any:
    _require_reasoning_gym(where)
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if dataset_name not in DATASETS:
        raise UserError(
            f"{where}: reasoning-gym has no task '{dataset_name}'{did_you_mean(dataset_name, DATASETS)} "
            f"(it has {len(DATASETS)}; the package's GALLERY.md shows each)"
        )
    known = [option.name for option in fields(DATASETS[dataset_name][1]) if option.name not in ("seed", "size")]
    for option in settings.keys() - {"seed", "size", *known}:
        raise UserError(f"{where}: no option '{option}'{did_you_mean(option, known)}; its options: {', '.join(known)}")
    try:
        return reasoning_gym.create_dataset(dataset_name, **settings)
    except (AssertionError, TypeError, ValueError) as error:  # how the tasks' own checks refuse a value
        raise UserError(f"{where}: these options are refused: {describe_error(error)}") from error


def _require_reasoning_gym(where: str) -> None:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise UserError(f"{where} needs the package reasoning-gym: pip install 'lit-rlhf[tasks]'")


def _is_held_out(question: str) -> bool:
    return hashlib.sha256(question.encode()).digest()[0] % EVAL_SHARE == 0


def _generator_seed(split: str, seed: int) -> int:
    """A start for the tasks' item seeds (start + index): below 2^31 to train on, from there to 2^32 to evaluate."""
    start = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:4], "big") >> 2
    return start + (2**31 if split == "eval" else 0)


def _plain(value: Any) -> Any:
    """The same value in Python's own types (some tasks hold numpy strings), so that its ``repr`` can be read back."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    for kind in (str, float):
        if isinstance(value, kind):
            return kind(value)
    return value
