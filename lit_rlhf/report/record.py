"""What was run, on what, and in which settings several runs differ."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from lit_rlhf.report.figures import time_unit
from lit_rlhf.report.numbers import write
from lit_rlhf.report.read import Run
from lit_rlhf.report.text import escape, table
from lit_rlhf_callbacks.metric_table import describe, in_table_order

_FIRST = ("note", "status", "command", "started", "ended", "resumed", "seed", "global_step", "hours", "device_hours")
_LEFT_OUT = {"name", "final_metrics"}
_NO_VARIABLE = ("name", "note", "trainer.default_root_dir")
_COMPARED = (
    "eval/pass_at_1", "eval/reward", "reward", "eval/rewards/accuracies", "eval/accuracy", "eval/nll",
    "eval/preference_loss", "eval/reward_loss", "loss",
    "completions/mean_length", "completions/clipped_ratio", "kl", "drift/forward_kl", "entropy",
)  # fmt: skip


def record_section(runs: Sequence[Run]) -> str:
    """Show ``run.json`` and the last value of every metric, a column per run."""
    facts = [flatten({key: value for key, value in run.record.items() if key not in _LEFT_OUT}) for run in runs]
    keys = sorted({key for each in facts for key in each}, key=_place)
    names = [escape(run.name) for run in runs]
    rows = [
        [escape(key), *(_value(each.get(key)) for each in facts)]
        for key in keys
        if any(each.get(key) for each in facts)
    ]
    last = [{name: values[-1][1] for name, values in run.columns.items()} for run in runs]
    metrics = in_table_order({name for each in last for name in each})
    final = [[_metric(name), *(write(each[name]) if name in each else "" for each in last)] for name in metrics]
    record = table(["", *names], rows) if rows else "<p>There is no run.json.</p>"
    if not final:
        return record
    fold = f"<summary>Last value of every metric ({len(final)})</summary>"
    return f"{record}<details>{fold}{table(['metric', *names], final)}</details>"


def difference_section(runs: Sequence[Run]) -> str:
    """Show the settings that differ from the first run's."""
    known = [run for run in runs if run.config]
    if len(known) < 2:
        return "<p>Fewer than two runs have a config.yaml, so no settings can be compared.</p>"
    flat = [flatten(run.config) for run in known]
    keys = [key for key in dict.fromkeys(key for each in flat for key in each) if key not in _NO_VARIABLE]
    differing = [key for key in keys if len({str(each.get(key)) for each in flat}) > 1]
    if not differing:
        return "<p>All settings are the same (names, notes and folders aside).</p>"
    rows = [[escape(key), *(escape(each[key]) if key in each else "–" for each in flat)] for key in differing]
    count = (
        "One setting differs."
        if len(rows) == 1
        else f"{len(rows)} settings differ: what changed cannot be put down to one."
    )
    return f"<p>{count}</p>{table(['setting', *(escape(run.name) for run in known)], rows)}"


def equal_hours_section(runs: Sequence[Run]) -> str:
    """Compare runs at the hours of the shortest one, since updates cost differently."""
    timed = [run for run in runs if run.columns.get("hours")]
    if len(timed) < 2:
        return "<p>Fewer than two runs have hours.</p>"
    least = min(run.columns["hours"][-1][1] for run in timed)
    until = [max(step for step, hours in run.columns["hours"] if hours <= least) for run in timed]
    rows = [["update", *(str(step) for step in until)]]
    for name in _COMPARED:
        cells = [_at(run, name, step) for run, step in zip(timed, until, strict=True)]
        if any(cells):
            rows.append([_metric(name), *cells])
    scale, unit = time_unit(runs)
    intro = f"<p>The last value until {write(least * scale)} {unit} of training, when the shortest run ends.</p>"
    return intro + table(["metric", *(escape(run.name) for run in timed)], rows)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Name every leaf of a config by its path; entries of lists that have a class go by its name.

    Example:
        >>> flatten({"a": {"b": 1}, "callbacks": [{"class_path": "my.Stop", "init_args": {"n": 2}}]})
        {'a.b': 1, 'callbacks.Stop.class_path': 'my.Stop', 'callbacks.Stop.n': 2}
    """
    flat: dict[str, Any] = {}
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = _by_class(value)
    if not isinstance(value, dict):
        return {prefix: value}
    for key, item in value.items():
        path = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        flat |= flatten(item, path)
    return flat


def _by_class(items: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for number, item in enumerate(items):
        path = item.get("class_path") if isinstance(item, dict) else None
        name = str(path).rpartition(".")[2] if path else str(number)
        place = 2
        while name in named:
            name, place = f"{name.partition('#')[0]}#{place}", place + 1
        named[name] = item
    return named


def _at(run: Run, name: str, until: int) -> str:
    values = [(step, value) for step, value in run.columns.get(name, []) if step <= until]
    if not values:
        return ""
    step, value = values[-1]
    error = dict(run.columns.get(f"{name}_se", [])).get(step)
    return write(value) + (f" ± {write(error)}" if error is not None and isfinite(error) else "")


def _place(key: str) -> tuple[int, str]:
    return (_FIRST.index(key) if key in _FIRST else len(_FIRST), "" if key in _FIRST else key.partition(".")[0])


def _metric(name: str) -> str:
    metric = describe(name)
    return f'<span title="{escape(metric.meaning)}">{escape(name)}</span>' if metric else escape(name)


def _value(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, float):
        return write(value)
    if isinstance(value, Mapping | list):
        return f"<code>{escape(value)}</code>"
    return escape(value)
