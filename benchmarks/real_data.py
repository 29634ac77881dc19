"""A real model on real data: SmolLM2-135M with LoRA, supervised, then as a reward model and by preferences.

    python -m lit_rlhf convert smollm2 smollm2-135m
    python benchmarks/real_data.py sft seed_tasks.jsonl --held-out-file user_oriented_instructions.jsonl
    python benchmarks/real_data.py reward testset-v1.json --model real/runs/sft
    python benchmarks/real_data.py dpo testset-v1.json --model real/runs/sft
    python benchmarks/real_data.py outcome example_model_solutions.jsonl

Where the files come from: benchmarks/real_rows.py. Each command reads the run directory of the one before, as a user
would. On a CPU, rows of at most 160 tokens and `--budget-minutes` of training; `--full` takes all of the data.
"""

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import real_rows
import torch
from lightning.pytorch import Trainer, seed_everything
from real_measure import HeldOut, Progress
from real_reports import REPORTS

from lit_rlhf import algorithms
from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.offline import OfflineAlgorithm
from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.data import PreferenceData, SupervisedData
from lit_rlhf_callbacks import RunFiles, RunRecord

STAGES: dict[str, dict[str, Any]] = {
    "sft": {"kind": algorithms.SFT, "read": real_rows.tasks, "data": SupervisedData, "rate": 2e-4},
    "reward": {"kind": algorithms.BradleyTerry, "read": real_rows.pairs, "data": PreferenceData, "rate": 5e-4},
    "dpo": {"kind": algorithms.DPO, "read": real_rows.pairs, "data": PreferenceData, "rate": 1e-4},
    "outcome": {"kind": algorithms.OutcomeReward, "read": real_rows.verdicts, "data": PreferenceData, "rate": 5e-4},
}


def prepare(options: argparse.Namespace) -> dict[str, str]:
    """Write the rows to train on and the rows held out, and print how many there are."""
    stage, tokenizer = STAGES[options.stage], Backbone(options.model).tokenizer
    rows = stage["read"](options.data)
    fit = [row for row in rows if real_rows.num_tokens(row, tokenizer) <= options.max_length]
    if options.held_out_file is None:
        train, held_out = real_rows.split(fit, options.held_out, options.limit, options.seed)
    else:
        others = stage["read"](options.held_out_file)
        others = [row for row in others if real_rows.num_tokens(row, tokenizer) <= options.max_length]
        train = real_rows.split(fit, 0, options.limit, options.seed)[0]
        held_out = real_rows.split(others, options.held_out, 0, options.seed)[1]
    print(
        f"{options.stage}: {len(rows)} rows, {len(fit)} of at most {options.max_length} tokens; "
        f"{len(train)} to train on, {len(held_out)} held out (seed {options.seed})",
        flush=True,
    )
    folder = options.out / "data"
    return {
        "train": real_rows.write(train, folder / f"{options.stage}-train.jsonl"),
        "eval": real_rows.write(held_out, folder / f"{options.stage}-eval.jsonl"),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train one stage within its budget and return what its held-out rows say."""
    files = prepare(options)
    stage = STAGES[options.stage]
    seed_everything(options.seed, verbose=False)
    rate = options.rate or stage["rate"]
    module: OfflineAlgorithm = stage["kind"](model=options.model, lora=LoRA(), optimizer=adamw(rate))
    data = stage["data"](
        **files, max_length=options.max_length, num_eval=10**6, examples_per_update=options.examples_per_update
    )
    held_out = HeldOut(before=options.stage == "sft")
    trainer = Trainer(
        accelerator="auto" if options.full else "cpu",
        devices=1,
        precision="bf16-mixed" if options.full and torch.cuda.is_available() else "32-true",
        max_epochs=options.epochs,
        max_time=None if options.full else datetime.timedelta(minutes=options.budget_minutes),
        accumulate_grad_batches=options.examples_per_update // 4,
        gradient_clip_val=1.0,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[RunFiles(name=options.stage), RunRecord(), held_out, Progress()],
        default_root_dir=options.out,
    )
    trainer.fit(module, data)
    found = REPORTS[options.stage](held_out, files)
    trained = {"updates": trainer.global_step, "rows per update": options.examples_per_update, "learning rate": rate}
    return {"stage": options.stage, "model": options.model, "seed": options.seed, **trained, **found}


def main() -> None:
    """Run one stage, print its numbers and add them to ``results.jsonl``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("data", type=Path)
    parser.add_argument("--held-out-file", type=Path, help="hold out rows of this file, instead of some of the data's")
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or the run directory of a stage before")
    parser.add_argument("--out", type=Path, default=Path("real"))
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--rate", type=float, help="learning rate, instead of the stage's own")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--examples-per-update", type=int, default=16)
    parser.add_argument("--limit", type=int, help="train on so many rows at most")
    parser.add_argument("--held-out", type=int, default=150, help="hold out so many rows at least, by whole prompts")
    parser.add_argument("--max-length", type=int, default=160)
    parser.add_argument("--budget-minutes", type=float, default=30, help="of training; evaluation comes on top")
    parser.add_argument("--full", action="store_true", help="for a GPU: all rows, 1,024 tokens, no budget")
    options = parser.parse_args()
    if options.full:
        options.max_length, options.held_out, options.limit = 1024, 300, None
    torch.set_num_threads(1)
    result = run(options)
    with (options.out / "results.jsonl").open("a") as file:
        file.write(json.dumps(result) + "\n")
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
