"""The token that a borrowed template closes turns with ends generation: in the run, in its folder, in what follows."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_rlhf import builtin
from lit_rlhf.algorithms.policy_gradient import GRPO
from lit_rlhf.algorithms.sft import SFT
from lit_rlhf.algorithms.stopping import count_stops
from lit_rlhf.backbone import Backbone
from lit_rlhf.data import PromptData, SupervisedData
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.rollout import NativeSampler

USER = 3  # <user>, which no untrained completion of the tiny model ends with
CLOSES_WITH_USER = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}<user>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ROWS = [
    {"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": "ok"}]} for n in range(40)
]
ADAMW = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 3e-3, "weight_decay": 0.0}}


class HeldOut(Callback):
    """What each evaluation said."""

    def __init__(self):
        self.seen = []

    def on_validation_end(self, trainer, pl_module):
        self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short SFT on a borrowed template: the held-out metrics before and after, and the saved folder."""
    folder = tmp_path_factory.mktemp("taught")
    tokenizer = AutoTokenizer.from_pretrained(builtin.model_folder("tiny"))
    tokenizer.chat_template = CLOSES_WITH_USER
    shutil.copytree(builtin.model_folder("tiny"), folder / "template")
    tokenizer.save_pretrained(folder / "template")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    held_out = HeldOut()
    trainer = Trainer(
        accelerator="cpu",
        callbacks=[held_out],
        max_steps=12,
        val_check_interval=12,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    module = SFT(optimizer=ADAMW, stop_max_new_tokens=8, packing=True)
    data = SupervisedData(
        train=str(folder / "rows.jsonl"), chat_template_source=str(folder / "template"), examples_per_update=8
    )
    trainer.fit(module, data)
    module.save_model(folder / "model")
    return module, held_out.seen, str(folder / "model")


def test_the_run_stops_there_too(trained):
    module, held_out, _ = trained
    assert module.backbone.eos_ids == (2, USER)
    assert module.run_facts()["stop_ids"] == [2, USER]
    assert held_out[-1]["eval/stop_rate"] == 1


def test_the_stop_rate_counts_completions_that_end_within_the_limit(trained):
    module, *_ = trained
    examples, sampler = module.trainer.datamodule.eval_examples, NativeSampler(module.backbone)
    assert count_stops(sampler, examples, 64, max_new_tokens=3, place=(0, 1)) == (4, 4)  # o, k, <user>
    assert count_stops(sampler, examples, 64, max_new_tokens=2, place=(0, 1)) == (0, 4)
    assert count_stops(sampler, examples, 3, max_new_tokens=3, place=(0, 2)) == (2, 2)
    assert count_stops(sampler, examples, 3, max_new_tokens=3, place=(1, 2)) == (1, 1)
    text = [Example(0, [Sample([1, 30, 2], [False, True, True], 0)])]
    assert count_stops(sampler, text, 64, max_new_tokens=3, place=(0, 1)) == (0, 0)


def test_token_accuracy_is_the_share_of_tokens_the_model_would_have_chosen(trained):
    module, held_out, _ = trained
    examples = module.trainer.datamodule.eval_examples
    right = total = 0
    with torch.no_grad():
        for example in examples:
            [sample] = example.samples
            top = module.backbone.hf_model(torch.tensor([list(sample.ids)])).logits[0].argmax(-1)
            for place, counts in enumerate(sample.mask):
                right += bool(counts) and int(top[place - 1]) == sample.ids[place]
                total += bool(counts)
    assert held_out[-1]["eval/mean_token_accuracy"] == pytest.approx(right / total, abs=1e-6)
    assert held_out[0]["eval/mean_token_accuracy"] < held_out[-1]["eval/mean_token_accuracy"]


def test_it_survives_saving_and_loading(trained):
    *_, folder = trained
    assert json.loads(Path(folder, "generation_config.json").read_text())["eos_token_id"] == [2, USER]
    assert Backbone(folder).eos_ids == (2, USER)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "say 7"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = model.generate(**prompt, max_new_tokens=8, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(ids) == "ok<user>"


def test_rl_on_the_folder_stops_there(trained, tmp_path):
    *_, folder = trained
    rows = [{"prompt": [{"role": "user", "content": f"say {n}"}], "answer": "ok"} for n in range(20)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    module = GRPO(model=folder, group_size=2, rewards=["exact_match"])
    trainer = Trainer(
        accelerator="cpu",
        max_steps=1,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(module, PromptData(prompts=str(tmp_path / "prompts.jsonl"), prompts_per_phase=4))
    assert module.backbone.eos_ids == (2, USER)
    assert trainer.callback_metrics["completions/mean_length"] < 8  # of the 64 it could have written
    assert trainer.callback_metrics["reward"] > 0.5
