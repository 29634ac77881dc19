"""Train every preference loss on on-policy pairs, several seeds, and measure held-out pass@1 before and after.

python benchmarks/preference_pairs.py pairs.jsonl --prompts 768
python benchmarks/validate_preference.py pairs.jsonl --seeds 42 123 2024
"""

import argparse
import math
import tempfile
from pathlib import Path
from statistics import mean, stdev

import torch
from lightning.pytorch import Trainer, seed_everything

import lit_rlhf.algorithms as algorithms
from lit_rlhf.algorithms.base import adamw
from lit_rlhf.data import PreferenceData, PromptData
from lit_rlhf.rollout import Sampling

# Learning rates for the embedded model; β, γ and the rest are each class's own defaults.
RATES = {
    "DPO": 5e-5,
    "CDPO": 5e-5,
    "RobustDPO": 5e-5,
    "DPONorm": 5e-5,
    "IPO": 5e-5,
    "Hinge": 5e-5,
    "SimPO": 1e-4,
    "CPO": 1e-4,
    "ORPO": 4e-4,
    "KTO": 1e-4,
    "APOZero": 1e-4,
    "APODown": 1e-5,
}
QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
}


def pass_at_1(model: str) -> float:
    """Return one-sample accuracy on the held-out words, with the noise that every evaluation here shares."""
    seed_everything(0, verbose=False)
    judge = algorithms.GRPO(model=model, eval_sampling=Sampling(max_new_tokens=12))
    trainer = Trainer(**QUIET, inference_mode=False)
    return trainer.validate(judge, PromptData(num_eval=512), verbose=False)[0]["eval/pass_at_1"]


def train(name: str, pairs: str, seed: int, epochs: int, folder: Path) -> float:
    """Train one loss with one seed; return pass@1 afterwards."""
    seed_everything(seed, verbose=False)
    module = getattr(algorithms, name)(optimizer=adamw(RATES[name]))
    trainer = Trainer(**QUIET, max_epochs=epochs, limit_val_batches=0, gradient_clip_val=1.0)
    trainer.fit(module, PreferenceData(train=pairs, num_eval=32, examples_per_update=32))
    module.save_model(folder)
    return pass_at_1(str(folder))


def main() -> None:
    """Print the Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--losses", nargs="+", default=list(RATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 123, 2024])
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = pass_at_1("builtin:tiny")
    print(f"before: {before:.3f} (n = 512)\n")
    print(
        "| class | learning rate | " + " | ".join(f"after, seed {seed}" for seed in options.seeds) + " | mean ± s.e. |"
    )
    print("|---|---|" + "---|" * len(options.seeds) + "---|")
    for name in options.losses:
        with tempfile.TemporaryDirectory() as folder:
            after = [
                train(name, options.pairs, seed, options.epochs, Path(folder) / str(seed)) for seed in options.seeds
            ]
        error = stdev(after) / math.sqrt(len(after)) if len(after) > 1 else float("nan")
        cells = " | ".join(f"{rate:.3f}" for rate in after)
        print(f"| `{name}` | {RATES[name]:.0e} | {cells} | {mean(after):.3f} ± {error:.3f} |", flush=True)


if __name__ == "__main__":
    main()
