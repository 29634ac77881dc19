"""Draw the README's picture from a run directory: held-out pass@1 and reward, entropy, completion length.

pip install matplotlib
python benchmarks/plot_run.py runs/<name> docs/images/grpo.png
"""

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt


def series(rows: list[dict[str, str]], name: str) -> tuple[list[int], list[float]]:
    """Return the updates and values of a column, without its gaps."""
    filled = [row for row in rows if row[name]]
    return [int(row["global_step"]) for row in filled], [float(row[name]) for row in filled]


def draw(run: Path, picture: Path) -> None:
    """Draw three panels side by side."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    figure, (quality, entropy, length) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
    steps, rate = series(rows, "eval/pass_at_1")
    error = series(rows, "eval/pass_at_1_se")[1]
    quality.plot(*series(rows, "reward"), color="0.75", label="reward (training prompts)")
    quality.errorbar(steps, rate, error, marker="o", color="tab:blue", label="held-out pass@1 ± s.e.")
    quality.set(title="right answers", ylim=(0, 1))
    quality.legend(loc="lower right", fontsize="small", frameon=False)
    entropy.plot(*series(rows, "entropy"), color="tab:orange")
    entropy.set(title="entropy (nats per token)", ylim=(0, None))
    length.plot(*series(rows, "completions/mean_length"), color="tab:green")
    length.set(title="completion length (tokens)", ylim=(0, None))
    for axis in (quality, entropy, length):
        axis.set_xlabel("update")
        axis.spines[["top", "right"]].set_visible(False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
