"""What bf16 cannot say: log(1 - p) near p = 1, long sums, and steps of a small learning rate. Trains nothing.

python benchmarks/precision_numerics.py builtin:tiny smollm2-135m
"""

import argparse
import math

import torch
from transformers.utils import logging

from lit_rlhf.backbone import Backbone

MEANS = (-2.0, -0.5, -0.1, -0.01, -0.003, -0.001, -1e-4, -1e-6, -1e-8)
RATES = (1e-4, 1e-5, 5e-6, 1e-6, 5e-7)
EPSILON = torch.finfo(torch.bfloat16).eps


def log1mexp_as_written(mean: float, kind: torch.dtype) -> float:
    """Return log(1 - p) as it is first written."""
    return float(torch.log(1 - torch.tensor(mean, dtype=kind).exp()))


@torch.no_grad()
def moved_by(model: str, rate: float) -> float:
    """Return the share of a model's weights, in bf16, that a step of that length changes, as Adam's first steps are."""
    torch.manual_seed(0)
    backbone = Backbone(model)
    backbone.load()
    moved = total = 0
    for parameter in backbone.policy.parameters():
        coarse = parameter.bfloat16()
        step = rate * torch.where(torch.rand_like(parameter) < 0.5, -1.0, 1.0)
        moved += int(((coarse.float() + step).bfloat16() != coarse).sum())
        total += parameter.numel()
    return moved / total


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["builtin:tiny"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    print("| mean log-prob per token | log(1 - p) | fp32, as written | bf16, as written |\n|---|---|---|---|")
    for mean in MEANS:
        coarse, fine = (log1mexp_as_written(mean, kind) for kind in (torch.bfloat16, torch.float32))
        print(f"| {mean:g} | {math.log(-math.expm1(mean)):.4f} | {fine:.4f} | {coarse:.4f} |")
    print("\n| sum of log-probs | distance to the next bf16 number |\n|---|---|")
    for total in (100, 500, 1000, 3000, 8000):
        print(f"| −{total} | {EPSILON * 2 ** int(math.log2(total)):g} |")
    print("\n| weights moved by one step | " + " | ".join(f"{rate:g}" for rate in RATES) + " |")
    print("|---|" + "---|" * len(RATES))
    for model in options.models:
        print(f"| {model} | " + " | ".join(f"{moved_by(model, rate):.2%}" for rate in RATES) + " |", flush=True)


if __name__ == "__main__":
    main()
