"""Logs of other trainers (TRL, verl, OpenRLHF, through files, W&B or TensorBoard) as rows with our names."""

import csv
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.foreign_names import HELD_OUT_ACCURACY, PLACEHOLDERS, STEPS, canonical
from lit_rlhf_callbacks.run_log import RunLog

Row = dict[str, float]
NUM_FULL = 5  # values in a row before a column counts as one without gaps


def read_log(path: Path) -> RunLog:
    """Read a foreign log; rows of one step, such as training and evaluation, become one.

    Args:
        path: ``.csv``, ``.jsonl``, ``trainer_state.json`` or a list of rows in ``.json``, or a TensorBoard event file.

    Returns:
        Rows in ascending order. Of the facts only those that the file holds.

    Raises:
        UserError: The file cannot be read, or holds no steps.
    """
    if not path.is_file():
        raise UserError(f"doctor: there is no file {path}; give a run directory or a log")
    facts: dict[str, Any] = {}
    if path.suffix == ".csv":
        raw = _without_missing(_read_csv(path))
    elif path.suffix == ".jsonl":
        raw = [_numbers(record) for record in _read_lines(path)]
    elif path.suffix == ".json":
        raw, facts = _read_json(path)
    elif "tfevents" in path.name:
        raw = _read_events(path)
    else:
        raise UserError(f"doctor: {path.name} is no log it knows; give .csv, .jsonl, .json or a TensorBoard event file")
    rows = without_placeholders(merge_rows(raw, where=path.name))
    return RunLog(rows, facts, notes=[f"{path.name}: settings are unknown, so rules that need them stay silent"])


def merge_rows(raw: Iterable[Row], where: str) -> list[tuple[int, Row]]:
    """Give columns our names and put rows of one step together.

    Raises:
        UserError: No row says which step it is of.
    """
    merged: dict[int, Row] = {}
    for record in raw:
        step = next((record[name] for name in STEPS if name in record), None)
        if step is None or not math.isfinite(step):
            continue
        row = merged.setdefault(int(step), {})
        for name, value in record.items():
            if (ours := canonical(name)) is not None:
                row.setdefault(ours, value)
    if not merged:
        raise UserError(f"doctor: {where}: no row has a step; it looks for a column {', '.join(STEPS[:4])}")
    _name_accuracy(merged.values())
    return sorted(merged.items())


def _name_accuracy(rows: Collection[Row]) -> None:
    """Find an RL run's share of right held-out answers under the names that projects give it."""
    names = {name for row in rows for name in row}
    if "reward" not in names or "eval/pass_at_1" in names:
        return
    theirs = next((name for name in HELD_OUT_ACCURACY if name in names), "")
    unit = 100.0 if any(row.get(theirs, 0.0) > 1.0 for row in rows) else 1.0  # some write per cent
    for row in rows:
        if theirs in row:
            row["eval/pass_at_1"] = row.pop(theirs) / unit


def without_placeholders(rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Leave out metrics that are 0 in every row because nobody measured them.

    Example:
        >>> without_placeholders([(1, {"kl": 0.0, "reward": 0.0}), (2, {"kl": 0.0, "reward": 0.0})])
        [(1, {'reward': 0.0}), (2, {'reward': 0.0})]
    """
    names = {name for _, row in rows for name in row if PLACEHOLDERS.fullmatch(name)}
    unmeasured = {name for name in names if all(row.get(name, 0.0) == 0.0 for _, row in rows)}
    return [(step, {name: value for name, value in row.items() if name not in unmeasured}) for step, row in rows]


def _numbers(record: Mapping[str, Any]) -> Row:
    """Keep what is a number, nested dicts (verl's ``data``) flattened."""
    found: Row = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
        elif isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):  # as W&B writes them
            found[name] = float(value.replace("Infinity", "inf"))
    return found


def _read_csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: number for name, cell in row.items() if (number := _cell(cell)) is not None} for row in rows]


def _cell(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):  # an empty cell, or text
        return None


def _without_missing(rows: list[Row]) -> list[Row]:
    """Leave out cells whose ``nan`` is a table's way to say *missing*; a full column that ends in it did break."""
    for name in {name for row in rows for name in row}:
        cells = [row[name] for row in rows if name in row]
        first_bad = next((place for place, value in enumerate(cells) if math.isnan(value)), len(cells))
        if first_bad > NUM_FULL and not any(map(math.isfinite, cells[first_bad:])):
            continue
        for row in rows:
            if math.isnan(row.get(name, 0.0)):
                del row[name]
    return rows


def _read_lines(path: Path) -> list[dict[str, Any]]:
    records = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise UserError(
                    f"doctor: {path.name}, line {number}: no JSON ({error}); each line is one row"
                ) from None
            if isinstance(record, dict):
                records.append(record)
    return records


def _read_json(path: Path) -> tuple[list[Row], dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"doctor: {path.name}: no JSON ({error})") from None
    is_state = isinstance(content, dict) and isinstance(content.get("log_history"), list)
    records = content["log_history"] if is_state else content
    if not isinstance(records, list):
        raise UserError(f"doctor: {path.name}: neither a list of rows nor a trainer_state.json with log_history")
    facts = {"trainer.max_steps": content["max_steps"]} if is_state and content.get("max_steps") else {}
    return [_numbers(record) for record in records if isinstance(record, dict)], facts


def _read_events(path: Path) -> list[Row]:
    try:
        reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    except ImportError:
        raise UserError(f"doctor: to read {path.name}, a TensorBoard file: pip install tensorboard") from None
    events = reader.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return [
        {"step": float(event.step), tag: event.value}
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    ]
