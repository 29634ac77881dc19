"""Run directories as they are found: files may be missing, last lines half-written, values NaN."""

import csv
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

FILES = ("metrics.csv", "run.json", "samples.jsonl", "sentinels.jsonl", "findings.jsonl", "checks.jsonl")
Record = dict[str, Any]


@dataclass
class Run:
    """What one run has left behind.

    Args:
        folder: Its directory.
        name: What it is called on the page.
        columns: ``metrics.csv`` by column: ``(step, value)`` of cells that are not empty; values may be NaN or inf.
        record: ``run.json``.
        config: ``config.yaml``.
        lines: The JSON lines files that exist, by name without the ending.
        notes: What could not be read, a sentence each.
    """

    folder: Path
    name: str
    columns: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    record: Record = field(default_factory=dict)
    config: Record = field(default_factory=dict)
    lines: dict[str, list[Record]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def hours_at(self, step: float) -> float | None:
        """Return the hours of training at an update, between rows by interpolation; None where they are unknown."""
        known = self.columns.get("hours", [])
        if not known:
            return None
        place = bisect_left(known, (step, float("-inf")))
        if place == 0 or place == len(known):
            return known[min(place, len(known) - 1)][1]
        (before, least), (after, most) = known[place - 1], known[place]
        return least + (most - least) * (step - before) / (after - before)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run directories, each once, and give them names that differ.

    Raises:
        UserError: One is no run directory.
    """
    folders = list(dict.fromkeys(folder.resolve() for folder in folders))
    return [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _read(folder: Path, name: str) -> Run:
    if not folder.is_dir() or not any((folder / file).is_file() for file in FILES):
        _refuse(folder)
    run = Run(folder, name)
    if (folder / "metrics.csv").is_file():
        _read_metrics(run)
    else:
        run.notes.append("there is no metrics.csv, so there are no curves")
    if (folder / "run.json").is_file():
        try:
            run.record = _as_record(json.loads((folder / "run.json").read_text(encoding="utf-8", errors="replace")))
        except ValueError:
            run.notes.append("run.json is cut off")
    if (folder / "config.yaml").is_file():
        import yaml  # what wrote the file has it too

        try:
            run.config = _as_record(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError):
            run.notes.append("config.yaml cannot be read")
    for file in FILES[2:]:
        if (folder / file).is_file():
            run.lines[file.partition(".")[0]] = list(_json_lines(run, file))
    return run


def _read_metrics(run: Run) -> None:
    text = (run.folder / "metrics.csv").read_text(encoding="utf-8", errors="replace").replace("\0", "")
    lines = text.split("\n")
    if lines.pop():  # a whole row ends with a line feed; a number that was cut could still be read as another number
        run.notes.append("the last line of metrics.csv is cut off and left out")
    rows = csv.reader(lines)
    header = next(rows, [])
    if "global_step" not in header:
        run.notes.append("metrics.csv has no column global_step, so there are no curves")
        return
    place, num_bad, last = header.index("global_step"), 0, float("-inf")
    for cells in rows:
        try:
            step = int(float(cells[place]))
            values = [(name, float(cell)) for name, cell in zip(header, cells, strict=False) if cell]
        except (IndexError, ValueError, OverflowError):
            num_bad += 1
            continue
        if step <= last:
            num_bad += 1
            continue
        last = step
        for name, value in values:
            run.columns.setdefault(name, []).append((step, value))
    if num_bad:
        run.notes.append(f"{num_bad} lines of metrics.csv are no rows of numbers in ascending order and are left out")


def _json_lines(run: Run, file: str) -> Iterator[Record]:
    num_bad = 0
    with (run.folder / file).open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                yield record
            elif line.strip():
                num_bad += 1
    if num_bad:
        run.notes.append(f"{num_bad} {'line' if num_bad == 1 else 'lines'} of {file} cannot be read and are left out")


def _as_record(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell them apart."""
    parts = [folder.parts for folder in folders]
    for num in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-num:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _refuse(folder: Path) -> NoReturn:
    from lit_rlhf_callbacks.errors import UserError  # it imports lightning

    below = sorted({file.parent for name in FILES[:2] for file in folder.glob(f"*/{name}")}) if folder.is_dir() else []
    if below:
        more = " …" if len(below) > 3 else ""
        raise UserError(f"report: {folder} holds runs; give them: {' '.join(str(run) for run in below[:3])}{more}")
    what = "is no run directory (no metrics.csv, no run.json)" if folder.exists() else "does not exist"
    raise UserError(f"report: {folder} {what}; give a folder that fit has written, such as runs/<name>")
