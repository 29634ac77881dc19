"""A progress bar for what takes long, on the first rank and on a terminal only."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from lightning.fabric.utilities.rank_zero import _get_rank
from rich.console import Console
from rich.progress import track as rich_track

T = TypeVar("T")
WORTH_SHOWING = 10_000


def track(items: Iterable[T], total: int, description: str) -> Iterator[T]:
    """Pass items on and show how far they are; nothing is shown of a few thousand.

    >>> list(track([1, 2], 2, "counting"))
    [1, 2]
    """
    console = Console(stderr=True)
    if total < WORTH_SHOWING or _get_rank() or not console.is_terminal:
        yield from items
    else:
        yield from rich_track(items, description, total, console=console, transient=True)
