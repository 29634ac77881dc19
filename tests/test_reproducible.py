"""R21: one seed, one machine, one config: one run, down to its files."""

import csv
import json
from pathlib import Path

from lit_rlhf.cli import main

# What is measured with a clock may differ; everything else may not.
TIMED = {
    "hours",
    "device_hours",
    "tokens_per_second",
    "time/rollout",
    "time/reward",
    "time/score",
    "time/update",
    "time/evaluation",
    "time/checkpoint",
}
COLUMNS = {
    "global_step",
    "loss",
    "policy_loss",
    "grad_norm",
    "learning_rate",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "rewards/exact_match/mean",
    "rewards/num_dropped",
    "entropy",
    "advantages/frac_nonzero",
    "advantages/mean",
    "advantages/std",
    "rewards/length_correlation",
    "logps/mean",
    "completions/empty_ratio",
    "completions/repetition",
    "ratio/mean",
    "ratio/max",
    "policy/approxkl_avg",
    "clip_ratio/low_mean",
    "clip_ratio/high_mean",
    "clip_ratio/region_mean",
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "completions/mean_length",
    "completions/min_length",
    "completions/max_length",
    "completions/clipped_ratio",
    "completions/mean_terminated_length",
    "num_tokens",
    "drift/forward_kl",
    "update/share_changed",
    "update/relative_norm",
    "eval/pass_at_1",
    "eval/pass_at_1_se",
    "eval/n",
    "eval/reward",
    "eval/completions/mean_length",
    "eval/completions/clipped_ratio",
}


def run(name):
    """Run the shipped config for a few updates and return its metrics and samples."""
    flags = ["--trainer.max_steps", "4", "--trainer.val_check_interval", "2", "--data.num_eval", "16"]
    main(["fit", "--config", "grpo", "--name", name, *flags, "--trainer.enable_progress_bar", "false"])
    with (Path("runs") / name / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    samples = [json.loads(line) for line in (Path("runs") / name / "samples.jsonl").open()]
    return rows, samples


def test_two_runs_with_one_seed_write_the_same_files(in_tmp_dir):
    (first, first_samples), (second, second_samples) = run("first"), run("second")
    assert set(first[0]) == COLUMNS | TIMED
    for row, other in zip(first, second, strict=True):
        assert {name: row[name] for name in COLUMNS} == {name: other[name] for name in COLUMNS}
    assert first_samples == second_samples != []
