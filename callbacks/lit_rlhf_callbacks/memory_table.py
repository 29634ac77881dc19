"""How predicted and measured memory look side by side."""

import io
import shutil

from lit_rlhf_callbacks.memory_plan import Parts

_PER_MICRO_BATCH = ("activations", "logits", "autocast")


def table(predicted: Parts, measured: Parts, how: str, title: str) -> str:
    """Lay out predicted parts beside what was measured.

    Args:
        predicted: Parts, by name.
        measured: ``static``, ``activations`` (with logits) and ``peak``.
        how: What the peak is.
        title: Of the table.
    """
    from rich.console import Console
    from rich.table import Table

    added = {name: size for name, size in predicted.items() if name in _PER_MICRO_BATCH}
    fixed = {name: size for name, size in predicted.items() if name not in (*_PER_MICRO_BATCH, "DDP buckets")}
    rows = Table(title=title)
    for heading in ("part", "predicted", "measured"):
        rows.add_column(heading, justify="left" if heading == "part" else "right")
    for name, size in predicted.items():
        rows.add_row(name, as_size(size), "")
    rows.add_section()
    rows.add_row("weights, gradients, optimiser", as_size(sum(fixed.values())), _known(measured, "static"))
    if added:
        rows.add_row("kept for the backward", as_size(sum(added.values())), _known(measured, "activations"))
    rows.add_row(f"peak ({how})", as_size(sum(predicted.values())), _known(measured, "peak"))
    width = max(100, shutil.get_terminal_size((120, 24)).columns)
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    console.print(rows)
    return console.file.getvalue()  # type: ignore[attr-defined]


def as_size(num_bytes: int) -> str:
    """Write a number of bytes for people.

    Example:
        >>> as_size(3_000_000), as_size(14_000_000_000)
        ('2.9 MiB', '13.0 GiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 1024:.1f} KiB"


def _known(measured: Parts, name: str) -> str:
    return as_size(measured[name]) if name in measured else ""
