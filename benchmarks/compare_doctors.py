"""Other run doctors beside ours: ``python benchmarks/compare_doctors.py FOLDER… [--every 10] [--each]``.

A folder holds recordings of real runs, made by ``tests/faults/record.py``: ``small-*`` and ``shipped-*`` of healthy
ones, the others of runs with a fault. Each doctor reads the rows as they were logged, at its default thresholds; one
that is not installed is left out (``pip install rldoctor==0.2.0 rlprobe==0.1.0 rlwatch==0.5.1``). *Named* is generous:
a warning, from the fault on, of the fault's kind, of its cause, or of what the other doctor calls either.
"""

import argparse
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "faults")]

from doctors_others import Words, rldoctor, rlprobe, rlwatch  # noqa: E402
from doctors_ours import CAUSES, WORDS, findings  # noqa: E402
from replay import GRAVE, read  # noqa: E402

from lit_rlhf_callbacks.replay import replay  # noqa: E402
from lit_rlhf_callbacks.run_log import RunLog  # noqa: E402


def ours_from_rows(log: RunLog) -> Words:
    """Our rules with the rows only, as the others have them."""
    return _ours(findings({"step": step, **row} for step, row in log.rows))


def ours_whole(log: RunLog) -> Words:
    """Our doctor as it ran: with the run's settings and its exact checks."""
    return _ours(replay(log)[1])


def _ours(found: Iterable[Any]) -> Words:
    for item in found:
        if item.is_active and item.severity in GRAVE:
            causes = [word for cause in item.causes[:2] for word in (cause.id, CAUSES.get(cause.id, cause.id))]
            yield frozenset([WORDS.get(item.kind, item.kind), *causes]), item.step, item.kind


DOCTORS: dict[str, tuple[str, Callable[[RunLog], Words]]] = {
    "rldoctor": ("rl_doctor", rldoctor),
    "rlprobe": ("rlprobe", rlprobe),
    "rlwatch": ("rlwatch", rlwatch),
    "ours, rows only": ("lit_rlhf_callbacks", ours_from_rows),
    "ours": ("lit_rlhf_callbacks", ours_whole),
}


def main() -> None:
    """Print one line per doctor, and with ``--each`` one per recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1, help="keep each so-manieth row only")
    parser.add_argument("--groups", nargs="+", default=["reporting", "long", "small"], help="what names begin with")
    parser.add_argument("--each", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.ERROR)
    doctors = {name: call for name, (module, call) in DOCTORS.items() if find_spec(module) is not None}
    tally: dict[str, dict[str, list[Any]]] = {name: defaultdict(list) for name in doctors}
    globs = [folder.glob(f"{group}-*.json.gz") for folder in args.folders for group in args.groups]
    for path in sorted(path for paths in globs for path in paths):
        recording, log = read(path)
        log.rows = [(step, row) for step, row in log.rows if step % args.every == 0]
        for name, call in doctors.items():
            said = list(call(log))
            _count(tally[name], path.name.startswith(("small-", "shipped-")), recording, said)
            if args.each:
                print(f"{path.name} {name}: {', '.join(dict.fromkeys(f'{own}@{at}' for _, at, own in said)) or '-'}")
    print("| doctor | broken runs named | median delay | silent on | early alarms | healthy with a warning |")
    print("|---|---|---|---|---|---|")
    for name, counts in tally.items():
        broken, healthy, delay = counts["named"], counts["healthy"], counts["delay"]
        print(
            f"| {name} | {sum(broken)}/{len(broken)} | {f'{median(delay):g}' if delay else '–'} "
            f"| {sum(counts['silent'])} | {sum(counts['early'])} | {sum(healthy)}/{len(healthy)} |"
        )


def _count(counts: dict[str, list[Any]], is_healthy: bool, recording: Mapping[str, Any], said: list[Any]) -> None:
    if is_healthy:
        counts["healthy"].append(bool(said))
        return
    truth = {WORDS.get(kind, kind) for kind in recording["kinds"]} | set(recording["causes"])
    truth |= {CAUSES[cause] for cause in recording["causes"] if cause in CAUSES}
    hits = [at for words, at, _ in said if words & truth and at >= recording["at"]]
    counts["named"].append(bool(hits))
    counts["silent"].append(not said)
    counts["early"].append(any(at < recording["at"] for _, at, _ in said))
    counts["delay"] += [min(hits) - recording["at"]] if hits else []


if __name__ == "__main__":
    main()
