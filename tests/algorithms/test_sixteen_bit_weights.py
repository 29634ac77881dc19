"""``bf16-true``: Lightning makes bf16 the default type for the whole step, and what is not a weight must not follow."""

import pytest
import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from lit_rlhf.algorithms import DPO, GRPO, KTO, SFT, BradleyTerry
from lit_rlhf.data import PreferenceData, PromptData, SupervisedData
from lit_rlhf.rollout import Sampling

FEW = {"num_rows": 8}
RUNS = {
    "SFT": lambda: (SFT(), SupervisedData(options=FEW, examples_per_update=4)),
    "BradleyTerry": lambda: (BradleyTerry(), PreferenceData(options=FEW, examples_per_update=4)),
    "DPO": lambda: (DPO(), PreferenceData(options=FEW, examples_per_update=4)),
    "KTO": lambda: (KTO(), PreferenceData(options=FEW, examples_per_update=4)),
    "GRPO": lambda: (
        GRPO(group_size=2, sampling=Sampling(max_new_tokens=2)),
        PromptData(options=FEW, prompts_per_phase=2),
    ),
}


class Keep(Callback):
    """Keep what the step showed."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.tokens = outputs["tokens"]


@pytest.fixture
def one_update():
    """A function: a module after one update with bf16 weights, its loss, and the tokens it showed."""

    def run(name):
        seed_everything(0, verbose=False)
        module, data = RUNS[name]()
        keep = Keep()
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            precision="bf16-true",
            max_steps=1,
            limit_val_batches=0,
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            callbacks=[keep],
        )
        trainer.fit(module, data)
        return module, trainer.callback_metrics["loss"], keep.tokens

    return run


@pytest.mark.parametrize("name", RUNS)
def test_an_update_with_bf16_weights_is_made(name, one_update):
    module, loss, _ = one_update(name)

    assert all(parameter.dtype == torch.bfloat16 for parameter in module.backbone.policy.parameters())
    assert loss.isfinite()


def test_log_probs_and_rewards_of_experience_keep_fp32(one_update):
    *_, tokens = one_update("GRPO")

    for name in ("sampler_logps", "logps", "rewards", "advantages"):
        assert tokens[name].dtype == torch.float32
    logps = tokens["sampler_logps"]
    assert (logps != logps.bfloat16().float()).any()  # not rounded on the way
