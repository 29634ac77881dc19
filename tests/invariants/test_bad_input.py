"""What cannot train well is refused in one line that names the setting, before anything is lost to it."""

import json
import shutil
import time

import pytest
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from short_runs import quiet, train, write_prompts

from lit_rlhf.algorithms import GRPO
from lit_rlhf.rollout import Sampling
from lit_rlhf_callbacks.errors import UserError

EVALUATED = {"limit_val_batches": 1.0}


def wrong_length(completions):
    return [0.0]


def not_a_number(completions):
    return [float("nan")] * len(completions)


def raising(completions):
    raise KeyError("no such key")


def hanging(completions):
    while True:
        time.sleep(0.01)


def negative(completions):
    return [-1.0 - n for n in range(len(completions))]


def needs_solution(completions, solution):
    return [0.0] * len(completions)


BAD_SETTINGS = {
    "a missing model folder": ({"model": "./nowhere"}, "model './nowhere': no such folder"),
    "a group of one": ({"group_size": 1}, "model.group_size: GRPO compares .* at least 2, got 1"),
    "a group of one to drop": ({"name": "Reinforce", "group_size": 1, "drop_zero_std": True}, "model.drop_zero_std"),
    "a phase too small": ({"windows_per_phase": 3, "accumulate": 6}, r"16 samples are fewer than .* \(3\) .* \(6\)"),
    "a greedy policy": ({"sampling": Sampling(temperature=0)}, "model.sampling.temperature: 0"),
    "a KL to nothing": ({"beta": 0.1, "reference": "none"}, "model.reference: GRPO .* cannot be none; use auto"),
    "MaxRL's KL": ({"name": "MaxRL", "beta": 0.1, "kl_in": "reward"}, "model.kl_in: reward, but MaxRL"),
    "MaxRL's rewards": ({"name": "MaxRL", "rewards": [negative]}, "model.rewards: MaxRL .* got -16"),
    "a schedule of accumulation": (
        {"callbacks": [GradientAccumulationScheduler({0: 1, 1: 2})]},
        "trainer.callbacks: GradientAccumulationScheduler .* set trainer.accumulate_grad_batches",
    ),
    "an evaluation within a window": (
        {"accumulate": 4, "trainer": {"val_check_interval": 6}},
        r"trainer.val_check_interval counts micro-batches: 6 is no multiple .* \(4\)",
    ),
    "an evaluation within a window, by a share of an epoch": (
        {"accumulate": 4, "trainer": {"val_check_interval": 0.3, "check_val_every_n_epoch": 1}},
        "trainer.val_check_interval: 0.3 of an epoch may end within an update; .* updates × 4",
    ),
    "an epoch that ends within a phase": (
        {"accumulate": 4, "trainer": {"limit_train_batches": 6}},
        "trainer.limit_train_batches: 6 micro-batches .* multiple of 4",
    ),
    "an unknown reward to evaluate": (
        {"eval_reward": "exact"},
        "model.eval_reward: no reward is called 'exact'.*spread",
    ),
    "a column that is not there": (
        {"rewards": [needs_solution]},
        "'needs_solution' needs 'solution', .* answer",
    ),
    "a reward of the wrong length": ({"rewards": [wrong_length]}, "'wrong_length' returned 1 scores for 16"),
    "a reward that is no number": ({"rewards": [not_a_number]}, "'not_a_number' returned nan"),
    "a reward that raises": ({"rewards": [raising]}, "'raising' raised KeyError: 'no such key' at .*test_bad_input.py"),
    "a reward that hangs": ({"rewards": [hanging], "reward_timeout_s": 0.1}, "'hanging' .*0.1 s"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings(model, data, case):
    settings, message = BAD_SETTINGS[case]
    with pytest.raises(UserError, match=message) as error:
        train(**{"name": "GRPO", "model": model, "data": data, **settings})
    assert "\n" not in str(error.value)


BAD_PROMPTS = {
    "none": ([], "has no prompt to train on"),
    "as long as the context": ([{"prompt": "a" * 70}], "prompt 0 has 7. tokens, but '.*' sees 64"),
    "an empty one": ([{"prompt": ""}], "prompts.jsonl, row 1: column 'prompt' is missing or empty"),
    "fewer than a phase needs": ([{"prompt": "a"}] * 2, r"2 prompts × model.group_size \(4\) = 8 samples are fewer"),
}


@pytest.mark.parametrize("case", BAD_PROMPTS)
def test_prompts(model, tmp_path, case):
    rows, message = BAD_PROMPTS[case]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message) as error:
        train("GRPO", model=model, data={"prompts": str(path)}, accumulate=9)
    assert "\n" not in str(error.value)


def test_a_conversation_without_chat_template(model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").unlink()
    data = write_prompts(tmp_path / "prompts.jsonl", ["yes"])
    (tmp_path / "prompts.jsonl").write_text('{"prompt": [{"role": "user", "content": "hello"}]}\n')
    with pytest.raises(UserError, match=r"prompt 0: the prompt is a conversation, .* has no chat template") as error:
        train("GRPO", model=str(tmp_path / "model"), data=data)
    assert "\n" not in str(error.value)


def test_somebody_elses_data_module(model):
    with quiet():
        off = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "limit_val_batches": 0}
        trainer = Trainer(accelerator="cpu", max_epochs=1, **off)
    with pytest.raises(UserError, match=r"data: GRPO reads its prompts from .*PromptData .* got LightningDataModule"):
        trainer.fit(GRPO(model=model), LightningDataModule())
