"""The doctor's table: ``python tests/faults/score.py FOLDER [--every 10] [--groups tuning]``."""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from replay import replay

from lit_rlhf_callbacks.symptoms import RULES
from lit_rlhf_callbacks.symptoms.robust import wilson


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--groups", nargs="+", default=["reporting", "long"], help="tuning, reporting, long")
    parser.add_argument("--armed", action="store_true", help="how many rows of the small runs each rule could look at")
    args = parser.parse_args()
    broken(args)
    healthy(args)


def broken(args):
    print("| fault | config | seed | named | as | cause's place | raised after | onset error |")
    print("|---|---|---|---|---|---|---|---|")
    hits, kinds, delays, errors, total = 0, 0, [], [], 0
    for path in (path for group in args.groups for path in sorted(args.folder.glob(f"{group}-*.json.gz"))):
        if "long_healthy" in path.name:
            continue
        seed = int(path.name.split("-")[-1].split(".")[0])
        result = replay(path, args.every)
        recording, finding = result.recording, result.named or result.kind_named
        at = recording["at"]
        total += 1
        hits += result.named is not None
        kinds += result.kind_named is not None
        early = f" (before: {', '.join(result.early)})" if result.early else ""
        if finding is None:
            seen = ", ".join(result.warnings) or "nothing"
            print(f"| {recording['fault']} | {recording['config']} | {seed} | **no** | {seen}{early} | | | |")
            continue
        ids = [cause.id for cause in finding.causes]
        place = min((ids.index(cause) + 1 for cause in recording["causes"] if cause in ids), default=0)
        delay = finding.raised - at
        error = max(finding.onset[0] - max(at, 1), 0, max(at, 1) - finding.onset[1])
        delays.append(delay)
        errors.append(error)
        word = "yes" if result.named else "kind only"
        seen = f"{finding.kind} ({finding.basis}){early}"
        print(
            f"| {recording['fault']} | {recording['config']} | {seed} | {word} | {seen} "
            f"| {place}: {ids[:2]} | {delay} | {error} |"
        )
    if total:
        print(f"\nnamed with the cause first or second: {hits}/{total}; kind named: {kinds}/{total}")
        print(f"median delay {median(delays):g} updates, median onset error {median(errors):g} updates")


def healthy(args):
    groups = defaultdict(list)
    for group in ("shipped", "small", "long-long_healthy"):
        for path in sorted(args.folder.glob(f"{group}-*.json.gz")):
            groups[group, path.name.removeprefix(f"{group}-").split("-")[-2]].append(replay(path, args.every))
    total = alarmed = critical = 0
    for (group, config), results in groups.items():
        with_warning = [result for result in results if result.warnings]
        kinds = sorted({kind for result in with_warning for kind in result.warnings})
        graver = sum(any(f.severity == "critical" for f in result.said) for result in results)
        if group == "small":
            total, alarmed, critical = total + len(results), alarmed + len(with_warning), critical + graver
        if with_warning or group != "shipped":
            print(f"{group} {config}: {len(with_warning)}/{len(results)} with a warning, {graver} critical: {kinds}")
    if total:
        low, high = wilson(alarmed, total)
        interval = f"{alarmed / total:.3f} [{low:.3f}, {high:.3f}]"
        print(f"false alarms over {total} healthy seeds: {interval}, critical {critical}")
    if args.armed:
        armed({config: results for (group, config), results in groups.items() if group == "small"})


def armed(by_config):
    """Print, per rule, the median over seeds of the rows in which it could look at what it needs."""
    print(f"\n| rule | {' | '.join(by_config)} |\n|---|{'---|' * len(by_config)}")
    for rule in RULES:
        name = rule.__name__
        rows = [f"{median(result.armed.get(name, 0) for result in results):g}" for results in by_config.values()]
        print(f"| {name} | {' | '.join(rows)} |")


if __name__ == "__main__":
    main()
