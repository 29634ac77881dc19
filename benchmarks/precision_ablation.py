"""Train ORPO and SimPO in fp32, bf16-mixed and bf16-true, and with log-probs in bf16: what each costs.

    python benchmarks/preference_pairs.py pairs.jsonl --prompts 768
    python benchmarks/precision_ablation.py pairs.jsonl out
    python benchmarks/precision_ablation.py pairs.jsonl out --arms bf16-mixed bf16-true --seeds 42
    python benchmarks/precision_ablation.py pairs.jsonl out --rate 1e-6

Whatever a run trained in, its saved weights are evaluated in fp32. bf16 is slow on CPUs without instructions for it.
A finished run is not run again: each is a line of ``out/results.jsonl``.
"""

import argparse
import csv
import json
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from coarse_numbers import coarse_scores
from lightning.pytorch import Trainer, seed_everything
from validate_preference import QUIET, RATES, pass_at_1

import lit_rlhf.algorithms as algorithms
from lit_rlhf.algorithms.base import adamw
from lit_rlhf.backbone import scoring
from lit_rlhf.data import PreferenceData
from lit_rlhf.functional.logprobs import score_hidden
from lit_rlhf_callbacks import PolicyMonitor, RunFiles
from lit_rlhf_callbacks.run_dir import run_dir


class Arm(NamedTuple):
    """How numbers are kept."""

    precision: str = "32-true"
    """Of the trainer."""
    coarse_weights: bool = False
    """Weights, gradients and Adam's averages in bf16, the forward in fp32: bf16-true at the speed of fp32."""
    coarse_logps: bool = False
    """Log-softmax and sums over tokens in bf16, as of a module that never asks for fp32."""


ARMS = {
    "fp32": Arm(),
    "fp32, bf16 log-probs": Arm(coarse_logps=True),
    "fp32, bf16 weights": Arm(coarse_weights=True),
    "fp32, bf16 weights and log-probs": Arm(coarse_weights=True, coarse_logps=True),
    "bf16-mixed": Arm("bf16-mixed"),
    "bf16-true": Arm("bf16-true"),
}


def held_out(name: str, pairs: str, model: str, seed: int, *, rounded: bool = False) -> dict[str, float]:
    """Return a model's held-out loss, margin and accuracy, in fp32; ``rounded``: of its weights as bf16 has them."""
    seed_everything(seed, verbose=False)
    data = PreferenceData(train=pairs, num_eval=64, examples_per_update=32)
    module = getattr(algorithms, name)(model=model)
    module.backbone.load()
    if rounded:
        module.backbone.bfloat16().float()
    [found] = Trainer(**QUIET).validate(module, data, verbose=False)
    return {key: found[f"eval/{key}"] for key in ("preference_loss", "rewards/margins", "rewards/accuracies")}


def train(name: str, arm: str, rate: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train one loss one way with one seed; return what the run and its weights say."""
    start = perf_counter()
    seed_everything(seed, verbose=False)
    optimizer = adamw(rate)
    if ARMS[arm].coarse_weights:
        optimizer["class_path"] = "coarse_numbers.CoarseAdamW"
    module = getattr(algorithms, name)(optimizer=optimizer)
    module.backbone.load()  # before the patch: it compares the patched function with the model's own head
    callbacks = [RunFiles(name=f"{name}-{arm}-{rate:g}-{seed}".replace(", ", "-").replace(" ", "-")), PolicyMonitor()]
    trainer = Trainer(
        **QUIET,
        precision=ARMS[arm].precision,  # type: ignore[arg-type]
        max_epochs=options.epochs,
        limit_val_batches=0,
        gradient_clip_val=1.0,
        callbacks=callbacks,
        default_root_dir=options.out,
    )
    data = PreferenceData(train=options.pairs, num_eval=64, examples_per_update=32)
    with patch.object(scoring, "score_hidden", coarse_scores if ARMS[arm].coarse_logps else score_hidden):
        trainer.fit(module, data)
    folder = run_dir(trainer)
    with (folder / "metrics.csv").open() as file:
        shares = [float(row["update/share_changed"]) for row in csv.DictReader(file) if row["update/share_changed"]]
    found: dict[str, Any] = {"share_changed": mean(shares), "updates": trainer.global_step}
    found |= held_out(name, options.pairs, str(folder / "model"), seed)
    found["pass_at_1"] = pass_at_1(str(folder / "model")) if rate > 1e-5 else None  # below, it does not move
    return {"loss": name, "arm": arm, "rate": rate, "seed": seed, **found, "seconds": round(perf_counter() - start)}


def spread(values: list[float], digits: int) -> str:
    """Write a mean with its standard error over seeds."""
    error = f" ± {stdev(values) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def main() -> None:
    """Train what is missing and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("out", type=Path)
    parser.add_argument("--losses", nargs="+", default=["ORPO", "SimPO"])
    parser.add_argument("--arms", nargs="+", default=[arm for arm in ARMS if "32" in arm])
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 123, 2024])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, help="instead of each loss's validated learning rate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    record = options.out / "results.jsonl"
    done = [json.loads(line) for line in record.open()] if record.is_file() else []
    print("| loss | learning rate | numbers | pass@1 | rise of the margin | accuracy | weights changed per update |")
    print("|---|---|---|---|---|---|---|")
    for name in options.losses:
        rate = options.rate or RATES[name]
        for arm in options.arms:
            rounded, rows = ARMS[arm].coarse_weights or ARMS[arm].precision == "bf16-true", []
            starts = [held_out(name, options.pairs, "builtin:tiny", seed, rounded=rounded) for seed in options.seeds]
            for seed in options.seeds:
                key = {"loss": name, "arm": arm, "rate": rate, "seed": seed}
                row = next((row for row in done if key.items() <= row.items()), None)
                if row is None:
                    row = train(name, arm, rate, seed, options)
                    with record.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                rows.append(row)
            margins = [row["rewards/margins"] for row in rows]
            rises = [margin - start["rewards/margins"] for margin, start in zip(margins, starts, strict=True)]
            passed = spread([row["pass_at_1"] for row in rows], 3) if rows[0]["pass_at_1"] is not None else "–"
            accuracy = spread([row["rewards/accuracies"] for row in rows], 3)
            share = mean(row["share_changed"] for row in rows)
            cells = [name, f"{rate:.0e}", arm, passed, spread(rises, 4), accuracy, f"{share:.1%}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
