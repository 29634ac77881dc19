"""Train every shipped laptop config on several seeds and write the table of docs/validation.md.

Each run is the shipped YAML with nothing but its seed and its name changed. Held-out pass@1 is measured by the run
itself: before the first update and after the last, with the same sampler, the same prompts and the same noise.

    python benchmarks/validate.py --seeds 42 123 2024 --out validation
"""

import argparse
import csv
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter

CONFIGS = sorted(
    path.stem
    for path in (Path(__file__).parent.parent / "configs").glob("*.yaml")
    if "eval/pass_at_1" in path.read_text() and "builtin:tiny" in path.read_text()
)


def train(config: str, seed: int, out: Path) -> float:
    """Run one config with one seed, unless it was run already; return its wall-clock seconds, 0 if it was."""
    folder = out / "runs" / f"{config}-{seed}"
    if (folder / "model").is_dir():
        return 0.0
    start = perf_counter()
    flags = ["--seed_everything", str(seed), "--name", folder.name, "--trainer.default_root_dir", str(out)]
    flags.append("--trainer.enable_progress_bar=false")
    with (out / f"{folder.name}.log").open("w") as log:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "lit_rlhf",
                "fit",
                "--config",
                config,
                *flags,
                "--trainer.enable_progress_bar=false",
            ],
            check=True,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return perf_counter() - start


def evaluations(folder: Path) -> list[tuple[int, float]]:
    """Return a run's (update, pass@1) pairs."""
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["eval/pass_at_1"]]
    return [(int(row["global_step"]), float(row["eval/pass_at_1"])) for row in rows]


def table(configs: list[str], seeds: list[int], out: Path) -> str:
    """Write the Markdown table: before, after, rise per seed, mean rise with its standard error over seeds."""
    lines = [
        "| config | before | "
        + " | ".join(f"after, seed {seed}" for seed in seeds)
        + " | smallest rise | mean rise ± s.e. |",
        "|---|---|" + "---|" * len(seeds) + "---|---|",
    ]
    for config in configs:
        curves = [evaluations(out / "runs" / f"{config}-{seed}") for seed in seeds]
        rises = [curve[-1][1] - curve[0][1] for curve in curves]
        error = stdev(rises) / math.sqrt(len(rises)) if len(rises) > 1 else float("nan")
        after = " | ".join(f"{curve[-1][1]:.3f}" for curve in curves)
        before = f"{mean(curve[0][1] for curve in curves):.3f}"
        lines.append(f"| `{config}` | {before} | {after} | {min(rises):+.3f} | {mean(rises):+.3f} ± {error:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 123, 2024])
    parser.add_argument("--out", type=Path, default=Path("validation"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; set OMP_NUM_THREADS to share the cores")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = [(config, seed) for config in options.configs for seed in options.seeds]
    with ThreadPoolExecutor(options.jobs) as pool:
        times = pool.map(lambda pair: (pair, train(*pair, options.out)), pairs)
        for (config, seed), seconds in times:
            print(f"{config} seed {seed}: {seconds:.0f} s", flush=True)
    result = table(options.configs, options.seeds, options.out)
    (options.out / "table.md").write_text(result + "\n")
    print(result)


if __name__ == "__main__":
    main()
