"""One source or several, with weights: read, numbered through, held out from, and drawn from."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf.data.bad_rows import BadRows, OnBadRow, RowError
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.data.files import Row
from lit_rlhf.data.formats import Record
from lit_rlhf.data.loader import permutation
from lit_rlhf.data.sources import Split, numbered_rows
from lit_rlhf_callbacks.errors import UserError

Sources: TypeAlias = str | list[str] | dict[str, float]
ReadRow: TypeAlias = Callable[[Row], Record]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A usable row."""

    number: int
    """Its number over all sources as read, from 0."""
    row: Row
    record: Record

    def prompt_key(self) -> str:
        """What two rows share that must not be split between training and evaluation: their prompt."""
        record = self.record
        if record.prompt:
            return repr(record.prompt)
        [whole] = record.completions
        if isinstance(whole, str):
            return repr(whole)
        first_answer = next(place for place, message in enumerate(whole) if message["role"] == "assistant")
        return repr(whole[:first_answer])


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a mixture, read."""

    name: str
    first: int
    """Number of its first row."""
    num_rows: int
    """Rows as read, unusable ones included."""
    rows: list[Loaded]
    bad: BadRows


def read_sources(
    names: Sequence[str],
    split: Split,
    *,
    kind: Kind,
    read_row: ReadRow,
    options: dict[str, Any],
    columns: dict[str, str],
    on_bad_row: OnBadRow,
) -> list[Source]:
    """Read sources one after the other.

    Args:
        names: What the user calls them.
        split: Which part of a task or a dataset id.
        kind: What a task is to be made into.
        read_row: Turns a row into a record, or raises `RowError`.
        options: Settings of a task.
        columns: Our names of columns, each with the name that the data has for it.
        on_bad_row: End, or skip and count.

    Raises:
        UserError: For a bad row, for too many of them, or for a source that cannot be read.
    """
    sources: list[Source] = []
    for name in names:
        first = sources[-1].first + sources[-1].num_rows if sources else 0
        bad, rows, num_rows = BadRows(name, on_bad_row), [], 0
        ids: dict[Any, int] = {}
        for number, row in numbered_rows(name, split, kind, options):
            num_rows = number + 1
            try:
                row = _renamed(_usable(row), columns)
                _check_id(row, number, ids)
                rows.append(Loaded(first + number, row, read_row(row)))
            except RowError as problem:
                bad.add(number, problem)
        bad.say(num_rows)
        sources.append(Source(name, first, num_rows, rows, bad))
    return sources


def names_and_weights(sources: Sources) -> tuple[list[str], list[float] | None]:
    """Take a setting apart: one source, several, or several with weights."""
    if isinstance(sources, dict):
        return list(sources), list(sources.values())
    return ([sources] if isinstance(sources, str) else list(sources)), None


def source_of(number: int, sources: Sequence[Source]) -> Source:
    """Find the source that a row's number belongs to."""
    return next(source for source in reversed(sources) if source.first <= number)


def hold_out(rows: Sequence[Loaded], num: int, *key: int | str) -> tuple[list[Loaded], list[Loaded]]:
    """Set rows aside for evaluation, all rows of a prompt together.

    Args:
        rows: All of one source.
        num: How many to set aside, at most; never more than a tenth.
        key: What the draw depends on.

    Returns:
        The rest, and the rows set aside, each in the order of the data.
    """
    keys = [row.prompt_key() for row in rows]
    sizes = Counter(keys)
    room = min(num, len(rows) // 10)
    aside: set[str] = set()
    for index in permutation(len(rows), "hold out", *key):
        if keys[index] not in aside and sizes[keys[index]] <= room:
            aside.add(keys[index])
            room -= sizes[keys[index]]
    train = [row for row, own in zip(rows, keys, strict=True) if own not in aside]
    return train, [row for row, own in zip(rows, keys, strict=True) if own in aside]


def mix(parts: Sequence[list[Loaded]], weights: Sequence[float] | None, *key: int | str) -> list[Loaded]:
    """Put sources together, each with its share; the one that runs short first decides how much of the others is used.

    Args:
        parts: The rows of each source.
        weights: Of each; None uses every row.
        key: What the draw depends on.

    Returns:
        Rows in the order of the data, none of them twice.

    Raises:
        UserError: If a weight is not positive.
    """
    if weights is None:
        return [row for part in parts for row in part]
    if not all(weight > 0 for weight in weights):
        raise UserError(f"data.train: weights must be positive, got {list(weights)}; leave out what is not wanted")
    total = sum(weights)
    num_mixed = min(len(part) * total / weight for part, weight in zip(parts, weights, strict=True))
    mixed = []
    for place, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        num = round(num_mixed * weight / total)
        mixed += [part[index] for index in sorted(permutation(len(part), "mixture", place, *key)[:num])]
    return mixed


def draw(rows: Sequence[Loaded], num: int | None, *key: int | str) -> list[Loaded]:
    """Return so many rows, in the order of the data; all of them for None."""
    if num is None:
        return list(rows)
    return [rows[index] for index in sorted(permutation(len(rows), *key)[:num])]


def warn_of_shared_prompts(train: Sequence[Loaded], held_out: Sequence[Loaded]) -> None:
    """Say how many held-out rows have a prompt that is trained on."""
    trained = {row.prompt_key() for row in train}
    num_shared = sum(row.prompt_key() in trained for row in held_out)
    if num_shared:
        rank_zero_warn(
            f"data.eval: {num_shared} of {len(held_out)} held-out rows have a prompt that is trained on, so they say "
            "little about new prompts; remove them from one of the two"
        )


def _usable(row: Row | RowError) -> Row:
    if isinstance(row, RowError):
        raise row
    if row.get("tools"):  # to leave them out would train on prompts that say something else
        raise RowError("is not supported", "write the tools into the system message", "tools")
    return row


def _renamed(row: Row, columns: dict[str, str]) -> Row:
    for theirs in columns.values():
        if theirs not in row:
            raise RowError("is missing", f"the row has {', '.join(map(str, row))}: correct data.columns", theirs)
    return {**row, **{ours: row[theirs] for ours, theirs in columns.items()}} if columns else row


def _check_id(row: Row, number: int, seen: dict[Any, int]) -> None:
    own = row.get("id")
    if not isinstance(own, str | int):
        return
    if own in seen:
        raise RowError("repeats an earlier row's", f"'{own}' is row {seen[own] + 1}'s too: remove one of them", "id")
    seen[own] = number
