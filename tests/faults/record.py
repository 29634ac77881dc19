"""Record every planned run that is not recorded yet: ``python tests/faults/record.py FOLDER [--part 0/2]``.

Takes about three hours on two idle cores; may be stopped and started again at any time.
"""

import argparse
import copy
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import plan
import torch
from fault import record

from lit_rlhf.data import sources

GROUPS = {
    "tuning": plan.tuning,
    "reporting": plan.reporting,
    "shipped": plan.shipped,
    "small": plan.small_seeds,
    "long": plan.long_runs,
}


def remember_tasks():
    """Make an embedded task's rows once per process and not once per run."""
    make, made = sources.load_task, {}

    def load(name, split, **options):
        key = (name, split, repr(options))
        if key not in made:
            made[key] = make(name, split, **options)
        return copy.deepcopy(made[key])

    sources.load_task = load


def main():
    torch.set_num_threads(1)
    remember_tasks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="0/1", help="this process's share of the runs, as 0/2 and 1/2")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--only", nargs="*", default=None, help="names of faults")
    args = parser.parse_args()
    part, num_parts = map(int, args.part.split("/"))
    args.folder.mkdir(parents=True, exist_ok=True)
    runs = [(group, fault, seed) for group in args.groups for fault, seed in GROUPS[group]()]
    for place, (group, fault, seed) in enumerate(runs):
        path = args.folder / f"{group}-{fault.id}-{seed}.json.gz"
        unwanted = args.only is not None and fault.name not in args.only
        if place % num_parts != part or path.exists() or unwanted:
            continue
        start = time.monotonic()
        try:
            record(fault, seed, path)
            print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)
        except Exception:
            print(f"{path.name}: NOT RECORDED\n{traceback.format_exc()}", flush=True)


if __name__ == "__main__":
    main()
