"""``python -m lit_rlhf best-of-n``: what choosing by score buys, computed exactly from a file of scored completions."""

import json
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Sequence
from math import comb, sqrt
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.files import read_file
from lit_rlhf_callbacks.errors import UserError


class Scored(NamedTuple):
    """One completion's score, and whether it is right."""

    score: float
    is_correct: bool


Group = list[Scored]
"""The completions of one prompt."""


def main(args: Sequence[str]) -> None:
    """Print a best-of-n curve, and how often scores rank a right completion above a wrong one.

    Args:
        args: ``best-of-n``, then the file.
    """
    parser = ArgumentParser(
        "python -m lit_rlhf best-of-n",
        description="Each row has prompt, completion, score (a number) and correct (true or false).",
    )
    parser.add_argument("scored", type=Path, help="a .jsonl file, several completions per prompt")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    options = parser.parse_args(args[1:])
    groups = read_groups(options.scored)
    show(groups, Console())


def read_groups(path: Path) -> list[Group]:
    """Read scored completions and put those of a prompt together.

    Raises:
        UserError: The file is missing or empty, or a row lacks something.
    """
    groups: dict[str, Group] = defaultdict(list)
    for number, row in read_file(path):
        where = f"{path}, row {number + 1}"
        if isinstance(row, RowError):
            what = f"column '{row.column}'" if row.column else "the row"
            raise UserError(f"{where}: {what} {row.problem}; {row.advice}")
        for column in ("prompt", "completion", "score", "correct"):
            if row.get(column) is None:
                raise UserError(f"{where}: no {column}; each row needs prompt, completion, score and correct")
        score, correct = row["score"], row["correct"]
        if isinstance(score, bool) or not isinstance(score, int | float) or score != score:
            raise UserError(f"{where}: score must be a number, not {score!r}")
        if correct not in (True, False):
            raise UserError(f"{where}: correct must be true or false, not {correct!r}")
        groups[json.dumps(row["prompt"], sort_keys=True)].append(Scored(score, bool(correct)))
    if not groups:
        raise UserError(f"{path}: there is no row; each needs prompt, completion, score and correct")
    return list(groups.values())


def best_of_n(group: Group, n: int) -> float:
    """Chance that the best-scored of n different completions is right, over all choices of n; ties are drawn by lot.

    Args:
        group: At least n completions of one prompt.
        n: How many are looked at.

    >>> best_of_n([Scored(0.1, False), Scored(0.5, True), Scored(0.9, False)], 2)
    0.3333333333333333
    """
    num_below, chance = 0, 0.0
    for block in _blocks(group):
        share_right = sum(one.is_correct for one in block) / len(block)
        up_to = num_below + len(block)
        chance += (comb(up_to, n) - comb(num_below, n)) * share_right  # choices whose best score is this block's
        num_below = up_to
    return chance / comb(len(group), n)


def pass_at_n(group: Group, n: int) -> float:
    """Chance that any of n different completions is right: what a perfect score would reach (arXiv 2107.03374)."""
    num_wrong = sum(not one.is_correct for one in group)
    return 1 - comb(num_wrong, n) / comb(len(group), n)


def pairwise_accuracy(group: Group) -> float | None:
    """Share of (right, wrong) pairs with the right one above, ties counted half; None without such a pair.

    >>> pairwise_accuracy([Scored(1.0, True), Scored(0.0, False), Scored(1.0, False)])
    0.75
    """
    right = [one.score for one in group if one.is_correct]
    wrong = [one.score for one in group if not one.is_correct]
    if not right or not wrong:
        return None
    return sum(0.5 * ((r > w) + (r >= w)) for r in right for w in wrong) / (len(right) * len(wrong))


def show(groups: Sequence[Group], console: Console) -> None:
    """Print the curve and the accuracies, each a mean over prompts ± its standard error."""
    sizes = [len(group) for group in groups]
    smallest = min(sizes)
    counts = f"{smallest}" if smallest == max(sizes) else f"{smallest} to {max(sizes)}"
    table = Table(title=f"{sum(sizes)} completions, {len(groups)} prompts with {counts} each", title_justify="left")
    for column in ("n", "best of n", "any of n right", "one at random"):
        table.add_column(column, justify="right")
    at_random = _mean([best_of_n(group, 1) for group in groups])
    for n in _curve(smallest):
        best, ceiling = ([of(group, n) for group in groups] for of in (best_of_n, pass_at_n))
        table.add_row(str(n), _mean(best), _mean(ceiling), at_random)
    console.print(table)
    pairwise = [accuracy for group in groups if (accuracy := pairwise_accuracy(group)) is not None]
    top = [best_of_n(group, len(group)) for group in groups]
    console.print(f"pairwise accuracy: {_mean(pairwise)} ({len(pairwise)} prompts with right and wrong completions)")
    console.print(f"top-1 accuracy: {_mean(top)} (the best-scored of all of a prompt's completions)")
    if smallest < max(sizes):
        console.print(f"the curve ends at n = {smallest}: a prompt has no more completions")


def _curve(largest: int) -> list[int]:
    powers = [2**k for k in range(largest.bit_length())]
    return powers if powers[-1] == largest else [*powers, largest]


def _blocks(group: Group) -> list[Group]:
    """Completions of equal score together, worst first."""
    by_score: dict[float, Group] = defaultdict(list)
    for one in group:
        by_score[one.score].append(one)
    return [by_score[score] for score in sorted(by_score)]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.3f}"
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return f"{mean:.3f} ± {sqrt(variance / len(values)):.3f}"
