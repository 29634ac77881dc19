"""Every run that is recorded: broken ones, healthy ones, and many small healthy seeds for the false-alarm rate."""

from dataclasses import replace

import offline_faults
import rl_faults
from fault import CONFIGS, Fault

SEEDS = {"tuning": 1, "reporting": 2}  # thresholds are chosen on the first, the table is made on the second
SHIPPED = [path.stem for path in sorted(CONFIGS.glob("*.yaml")) if "smollm2" not in path.stem]
SMALL_ONLINE = ("--data.prompts_per_phase", "4", "--data.num_eval", "32", "--trainer.val_check_interval", "40")
SMALL_OFFLINE = ("--data.examples_per_update", "32", "--data.num_eval", "32", "--trainer.val_check_interval", "40")
SMALL_PAIRS = ("--data.examples_per_update", "16", *SMALL_OFFLINE[2:])
STEPS = ("--trainer.max_steps", "120")
SMALL = {
    "grpo": (*SMALL_ONLINE, *STEPS),
    "reinforce": ("--data.prompts_per_phase", "32", *SMALL_ONLINE[2:], *STEPS),
    "sft": (*SMALL_OFFLINE, *STEPS),
    "dpo": (*SMALL_PAIRS, *STEPS),
    "reward_model": (*SMALL_PAIRS, *STEPS),
}
NUM_SEEDS = {"grpo": 30, "reinforce": 20, "sft": 60, "dpo": 45, "reward_model": 45}
LONG_RUN = ("--trainer.max_steps", "700")
TINY = ("--data.num_eval", "32", "--trainer.val_check_interval", "40")
TINY_PROMPTS = {"grpo": "2", "rloo": "2", "reinforce": "16"}  # 16 completions per update


def faults():
    """Return every fault, of every config it is tried on."""
    return [*rl_faults.FAULTS, *offline_faults.FAULTS]


def tuning():
    """Yield what thresholds are chosen on: each fault on its first config."""
    first = {}
    for fault in faults():
        first.setdefault(fault.name, fault)
    for fault in first.values():
        yield fault, SEEDS["tuning"]


def reporting():
    """Yield what the table is made of: each fault on every config; a second config comes after all first ones."""
    seen = {}
    for fault in faults():
        seen.setdefault(fault.name, []).append(fault)
    for place in range(max(map(len, seen.values()))):
        for same in seen.values():
            if place < len(same):
                yield same[place], SEEDS["reporting"]


def shipped():
    """Yield every shipped YAML as it is, twice."""
    for seed in SEEDS.values():
        for config in SHIPPED:
            yield Fault("healthy", config, args=()), seed


def small_seeds():
    """Yield the seeds of the false-alarm rate: 32 samples per update, 120 updates."""
    for place in range(max(NUM_SEEDS.values())):
        for config, args in SMALL.items():
            if place < NUM_SEEDS[config]:
                yield Fault("small", config, args=args), 100 + place


LONG_FAULTS = (
    "rewards_length",
    "rewards_shortness",
    "gameable_proxy",
    "rewards_repetition",
    "reward_dies",
    "rate_jumps",
)
NUM_HEALTHY_LONG = 3


def long_runs():
    """Yield runs of 700 updates on the smallest setting, to be read every tenth row; the first ones are healthy."""
    for place in range(NUM_HEALTHY_LONG):
        yield _long(Fault("healthy", "grpo")), 100 + place
    for fault in rl_faults.FAULTS:
        if fault.name in LONG_FAULTS and fault.config in TINY_PROMPTS:
            yield _long(replace(fault, at=300)), SEEDS["reporting"]


def _long(fault):
    prompts = ("--data.prompts_per_phase", TINY_PROMPTS[fault.config])
    return replace(fault, name=f"long_{fault.name}", args=(*prompts, *TINY, *LONG_RUN))
