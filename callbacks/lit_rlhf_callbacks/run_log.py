"""What a finished or running run has left behind for the doctor: rows, facts, results of exact checks."""

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lit_rlhf_callbacks.doctor_facts import flatten
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.open_row import STEP, Row
from lit_rlhf_callbacks.symptoms.finding import CheckResult

_CHECK = {item.name for item in fields(CheckResult)}


@dataclass
class RunLog:
    """One run, as it can be replayed.

    Args:
        rows: ``(step, metrics)`` in ascending order.
        facts: As `gather_facts` names them.
        events: Results of exact checks, and the updates that the run was resumed from (numbers), in order.
        checkpoints: Files by the update they were saved after.
        notes: What could not be read, one line each.
    """

    rows: list[tuple[int, Row]]
    facts: dict[str, Any]
    events: list[CheckResult | int] = field(default_factory=list)
    checkpoints: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_run_dir(folder: Path) -> RunLog:
    """Read a run directory; without ``checks.jsonl`` the facts come from ``run.json``, as far as they go.

    Raises:
        UserError: There is no ``metrics.csv``.
    """
    file = folder / "metrics.csv"
    if not file.is_file():
        raise UserError(
            f"doctor: there is no metrics.csv in {folder}; give a run directory, or a log of another trainer"
        )
    log = RunLog(_read_rows(file), {}, checkpoints=_checkpoints(folder))
    if (folder / "checks.jsonl").is_file():
        _add_checks(log, folder / "checks.jsonl")
        return log
    log.notes.append("the run had no RunDoctor: nothing is known of exact checks")
    if (folder / "run.json").is_file():
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        log.facts = flatten(record.get("data") or {}) | flatten(record.get("run") or {})
        log.facts["trainer.world_size"] = record.get("world_size", 1)
        log.events = [int(resumed["global_step"]) for resumed in record.get("resumed", [])]
    return log


def _read_rows(file: Path) -> list[tuple[int, Row]]:
    with file.open(encoding="utf-8", newline="") as lines:
        table = list(csv.DictReader(lines))
    rows = []
    for number, cells in enumerate(table, start=2):
        try:
            row = {name: float(cell) for name, cell in cells.items() if cell}
            rows.append((int(row.pop(STEP)), row))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"doctor: {file}, line {number}: no row of metrics ({error})") from None
    return rows


def _add_checks(log: RunLog, file: Path) -> None:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError:
                log.notes.append(f"checks.jsonl, line {number}: cut off")
                continue
            add_record(log, record)


def add_record(log: RunLog, record: Mapping[str, Any]) -> None:
    """Add one record of ``checks.jsonl``: facts, perhaps of a resume, or the result of an exact check."""
    if "facts" not in record:
        log.events.append(CheckResult(**{name: value for name, value in record.items() if name in _CHECK}))
        return
    log.facts |= record["facts"]
    if record.get("resumed"):
        log.events.append(int(record["step"]))


def _checkpoints(folder: Path) -> dict[int, str]:
    found = ((re.search(r"step=(\d+)", path.name), path) for path in (folder / "checkpoints").glob("*.ckpt"))
    return {int(match[1]): str(path) for match, path in found if match is not None}
