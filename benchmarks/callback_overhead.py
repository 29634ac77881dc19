"""What the callbacks cost: CPU time of their hooks beside that of an update, and with them against without.

Runs a shipped config with every callback of `lit_rlhf_callbacks` at its default settings. CPU time of the process, one
thread: how busy the machine is does not matter. Usage::

    OMP_NUM_THREADS=1 python benchmarks/callback_overhead.py --updates 100 --pairs 2
"""

import argparse
import csv
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint

import lit_rlhf_callbacks
from lit_rlhf.cli import LitRLHFCLI
from lit_rlhf.cli.arguments import read_arguments
from lit_rlhf_callbacks.symptoms import KINDS, RULES
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis

NAMES = [name for name in lit_rlhf_callbacks.__all__ if name != "UserError"]
ONCE = {"setup", "on_fit_start", "on_train_start", "on_train_end", "on_fit_end", "teardown"}
SAVING = {"on_save_checkpoint", "state_dict"}
FIRST_CHECKS, CHECKS_EVERY = 3, 100


class Updates(Callback):
    """CPU seconds of each update, rollout included, evaluations not; stands before all others."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start: float | None = None

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """End an update and begin the next."""
        self._end()
        self._start = process_time()

    def on_validation_start(self, *_: Any) -> None:
        """Leave an evaluation out."""
        self._before = process_time()

    def on_validation_end(self, *_: Any) -> None:
        """Go on."""
        if self._start is not None:
            self._start += process_time() - self._before

    def on_train_end(self, *_: Any) -> None:
        """End the last update."""
        self._end()

    def _end(self) -> None:
        if self._start is not None:
            self.seconds.append(process_time() - self._start)


class Costs:
    """CPU seconds in callbacks' hooks, each without the hooks that it calls itself."""

    def __init__(self, updates: Updates) -> None:
        self.updates = updates
        self.seconds: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.with_findings: set[int] = set()  # updates in which the doctor had something to say
        self._inner: list[float] = []
        self._is_saving = False

    def watch(self, callback: Callback) -> None:
        """Put a clock around each hook that a callback has."""
        names = [name for name in dir(Callback) if name.startswith("on_") or name in ONCE | SAVING]
        for name in names:
            if getattr(type(callback), name) is not getattr(Callback, name):
                setattr(callback, name, self._timed(callback, name))

    def _timed(self, callback: Callback, name: str) -> Any:
        hook, who = getattr(callback, name), type(callback).__name__

        def run(*args: Any, **kwargs: Any) -> Any:
            was_saving, known = self._is_saving, _findings(callback)
            self._is_saving |= name in SAVING or isinstance(callback, Checkpoint)
            self._inner.append(0.0)
            start = process_time()
            try:
                return hook(*args, **kwargs)
            finally:
                whole = process_time() - start
                what = "once" if name in ONCE else "saving" if self._is_saving else "update"
                update = len(self.updates.seconds) + 1
                self.seconds[who, what][update] += whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole
                self._is_saving = was_saving
                if _findings(callback) != known:
                    self.with_findings.add(update)

        return run

    def of(self, name: str, updates: list[int]) -> list[float]:
        """Return milliseconds in each of these updates."""
        return [1e3 * self.seconds[name, "update"].get(update, 0.0) for update in updates]


def _findings(callback: Callback) -> list[tuple[str, str, str]]:
    diagnosis = getattr(callback, "diagnosis", None)
    found = diagnosis.findings.values() if diagnosis is not None else []
    return [(each.kind, each.state, each.severity) for each in found]


def train(options: argparse.Namespace, folder: Path, with_callbacks: bool, costs: Costs | None = None) -> list[float]:
    """Run the config; return CPU seconds per update."""
    updates = costs.updates if costs is not None else Updates()

    class Measured(LitRLHFCLI):
        def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
            own = config["callbacks"]
            if costs is None:  # the same in both arms, or absent from both
                own = [each for each in own if not isinstance(each, Checkpoint | lit_rlhf_callbacks.SamplePanel)]
            have = {type(each).__name__ for each in own}
            missing = [name for name in NAMES if name not in have | {"SamplePanel", "SentinelEval"}]
            missing += ["SentinelEval"] if costs is not None and "SentinelEval" not in have else []
            own = [*own, *(getattr(lit_rlhf_callbacks, name)() for name in missing)] if with_callbacks else []
            for callback in own if costs is not None else []:
                costs.watch(callback)
            config["callbacks"] = [updates, *own]
            return super()._instantiate_trainer(config, callbacks)

    flags = [f"--trainer.max_steps={options.updates}", f"--trainer.default_root_dir={folder}"]
    flags += ["--name=cost", "--trainer.enable_progress_bar=false"]
    if costs is None:
        flags += ["--trainer.limit_val_batches=0", "--trainer.enable_checkpointing=false"]
    Measured(*read_arguments(["fit", "--config", options.config, *flags]))
    return updates.seconds


def report(costs: Costs) -> None:
    """Print the tables."""
    num = len(costs.updates.seconds)
    every = list(range(1, num + 1))
    exact = [u for u in every if u <= FIRST_CHECKS or u % CHECKS_EVERY == 0]
    found = [u for u in every if u in costs.with_findings and u not in exact]
    usual = [u for u in every if u not in exact and u not in found]
    inside = {
        u: sum(1e3 * per.get(u, 0.0) for (_, what), per in costs.seconds.items() if what != "once") for u in every
    }
    step = median(1e3 * costs.updates.seconds[u - 1] - inside[u] for u in every)
    print(f"\nAn update without callbacks takes {step:.0f} ms of CPU time (median of {num}).\n")
    print("| callback | ms per update, median | mean | share of an update |\n|---|---|---|---|")
    total = 0.0
    for name in NAMES:
        apart = name in {"SamplePanel", "SentinelEval"}
        own = [u for u in usual if u % 20 and u != num] if apart else usual
        values = costs.of(name, own)
        total += mean(values)
        print(f"| `{name}` | {median(values):.2f} | {mean(values):.2f} | {mean(values) / step:.2%} |")
    checks = mean(costs.of("RunDoctor", [u for u in exact if u % CHECKS_EVERY == 0] or exact))
    print(f"| exact checks, each of {checks:.0f} ms, over {CHECKS_EVERY} updates | | {checks / CHECKS_EVERY:.2f} "
          f"| {checks / CHECKS_EVERY / step:.2%} |")  # fmt: skip
    total += checks / CHECKS_EVERY
    print(f"| **all** | | {total:.2f} | **{total / step:.2%}** |\n\nApart, CPU ms each:\n\n| what | how many | ms |")
    print("|---|---|---|")
    saved = [name for name, what in costs.seconds if what == "saving"]
    times = {u for name in saved for u in costs.seconds[name, "saving"]}
    ours = sum(sum(costs.seconds[name, "saving"].values()) for name in saved if name in NAMES)
    whole = sum(sum(costs.seconds[name, "saving"].values()) for name in saved)
    num_saved = len(costs.seconds["ExactResume", "saving"]) or len(times)
    print(f"| checkpoints, our part | {num_saved} | {1e3 * ours / num_saved:.1f} |")
    print(f"| checkpoints, whole | {num_saved} | {1e3 * whole / num_saved:.1f} |")
    rows = {"exact checks of the first updates": ("RunDoctor", [u for u in exact if u <= FIRST_CHECKS])}
    rows["row with a new finding, or a changed one"] = "RunDoctor", found
    for name in ("SamplePanel", "SentinelEval"):
        rows[name] = name, [u for u in every if u % 20 == 0 or u == num]
    for what, (name, own) in rows.items():
        if own:
            print(f"| {what} | {len(own)} | {mean(costs.of(name, own)):.1f} |")
    for name in NAMES:
        print(f"| `{name}`, start and end of a run | 1 | {1e3 * sum(costs.seconds[name, 'once'].values()):.0f} |")


def rules(file: Path, num_rows: int) -> None:
    """Feed the rules a long run made of a short one's rows, and compare its first and its last tenth."""
    with file.open() as lines:
        rows = [{k: float(v) for k, v in row.items() if v and k != "global_step"} for row in csv.DictReader(lines)]
    noise, diagnosis, seconds = random.Random(0), Diagnosis(RULES, KINDS, {"stage": "rl"}), []
    for step in range(1, num_rows + 1):
        row = dict(noise.choice(rows[len(rows) // 2 :]))
        row["hours"] = step / 3600
        start = process_time()
        changed = diagnosis.add_row(step, row)
        if not changed:
            seconds.append(1e3 * (process_time() - start))
    tenth = len(seconds) // 10
    print(f"\nRules alone, {num_rows} rows: {median(seconds[:tenth]):.2f} ms a row in the first tenth, "
          f"{median(seconds[-tenth:]):.2f} in the last.")  # fmt: skip


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/grpo.yaml")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=2, help="runs with and without, in turn")
    parser.add_argument("--pair-updates", type=int, default=30)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.updates:
            costs = Costs(Updates())
            train(options, Path(folder), True, costs)
            report(costs)
            rules(Path(folder, "runs", "cost", "metrics.csv"), options.rows)
        options.updates, differences, steps = options.pair_updates, [], []
        for _ in range(options.pairs):
            with_them, without = train(options, Path(folder), True), train(options, Path(folder), False)
            differences += [1e3 * (a - b) for a, b in list(zip(with_them, without, strict=True))[FIRST_CHECKS:]]
            steps += [1e3 * b for b in without[FIRST_CHECKS:]]
        if differences:
            print(f"\nWith against without, the same updates, {options.pairs} pairs of runs: "
                  f"{median(differences):.1f} ms more (median; mean {mean(differences):.1f}) of {mean(steps):.0f}, "
                  f"{median(differences) / mean(steps):.1%}.")  # fmt: skip


if __name__ == "__main__":
    main()
