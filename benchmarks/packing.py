"""How much faster packed SFT updates are, on lengths that vary a lot, and what is left of the padding.

Runs alternate between packed and unpacked; each pair gives a ratio. Usage::

    python benchmarks/packing.py --model builtin:tiny --repeats 5
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from lightning.pytorch import Callback, Trainer, seed_everything

from lit_rlhf import SFT
from lit_rlhf.data import SupervisedData


class Clock(Callback):
    """Seconds of training, without set-up and without the first update, which warms up."""

    def on_train_batch_end(self, *_: object) -> None:
        """Start after the first batch, and look at the clock after every other."""
        if not hasattr(self, "start"):
            self.start = time.perf_counter()
        self.seconds = time.perf_counter() - self.start


def write_rows(path: Path, num: int, longest: int) -> str:
    """Write rows whose lengths in bytes are log-normal, as of instructions and answers: many short, few long."""
    rng = random.Random(0)
    lengths = [min(max(int(rng.lognormvariate(4.2, 0.9)), 8), longest - 8) for _ in range(num)]
    text = [{"prompt": "x" * (n // 4), "completion": "y" * (n - n // 4)} for n in lengths]
    path.write_text("".join(json.dumps(row) + "\n" for row in text))
    return str(path)


def seconds(rows: str, packing: bool, options: argparse.Namespace) -> float:
    """Train and return the seconds it took."""
    seed_everything(1)
    clock = Clock()
    trainer = Trainer(
        accelerator="auto",
        devices=1,
        callbacks=[clock],
        max_steps=options.updates + 1,
        accumulate_grad_batches=options.accumulate,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    data = SupervisedData(train=rows, max_length=options.max_length, examples_per_update=options.rows_per_update)
    module = SFT(
        model=options.model, packing=packing, max_tokens_per_forward=options.max_tokens, gradient_checkpointing=False
    )
    trainer.fit(module, data)
    return clock.seconds


def main() -> None:
    """Print each way's median time and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--rows-per-update", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=None, help="max_tokens_per_forward")
    parser.add_argument("--max-length", type=int, default=512)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = write_rows(Path(folder) / "rows.jsonl", 1000, options.max_length)
        pairs = [(seconds(rows, False, options), seconds(rows, True, options)) for _ in range(options.repeats)]
    unpacked, packed = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(before / after for before, after in pairs)
    print(
        f"{options.updates} updates of {options.rows_per_update} rows: {unpacked:.2f} s, packed {packed:.2f} s; "
        f"{statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    main()
