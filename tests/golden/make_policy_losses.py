"""Record what TRL's GRPOTrainer makes of crafted inputs, for tests/functional/test_golden_policy_losses.py.

Run in an environment of its own (`pip install trl==1.16.0`): `python tests/golden/make_policy_losses.py`. It needs no
network: the model is a random two-layer Llama, the tokenizer has one token per byte. The trainer is TRL's own and so
is the loss code it runs; only its method that computes log-probabilities is replaced, by one that returns a leaf
tensor, so that the gradient with respect to each token's log-probability can be recorded.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

NUM_ROWS, PROMPT_LENGTH, MAX_COMPLETION_LENGTH = 6, 3, 8
COMPLETION_LENGTHS = [7, 2, 5, 1, 4, 6]  # none reaches the limit: dr_grpo's constant must not equal a real length
ADVANTAGES = [1.3, -0.7, 0.4, -1.1, 0.0, -1.6]
# All that TRL would otherwise take from its defaults and that changes the loss.
BASE = {"loss_type": "grpo", "importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo_kl": {"beta": 0.1},
    "grpo_kl_bias_corrected": {"beta": 0.1, "use_bias_correction_kl": True},
    "grpo_two_sided": {"delta": 1.6},
    "grpo_accumulated": {"beta": 0.1, "num_micro_batches": 2},
    "bnpo": {"loss_type": "bnpo", "beta": 0.1},
    "dr_grpo": {"loss_type": "dr_grpo", "beta": 0.1},
    "dapo": {"loss_type": "dapo"},
    "dapo_accumulated": {"loss_type": "dapo", "beta": 0.1, "num_micro_batches": 3},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.28, "beta": 0.1},  # the bound itself, not an offset from 1
    "sapo": {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "beta": 0.1},
    "gspo": {"importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.08},
    "gspo_kl": {"importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.08, "beta": 0.1},
}


def save_tiny_model(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, "<eos>", "<pad>"])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.2,  # large, so that log-probabilities differ visibly between tokens
        eos_token_id=vocabulary["<eos>"],
        pad_token_id=vocabulary["<pad>"],
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def make_trainer(folder: Path, settings: dict[str, Any]) -> GRPOTrainer:
    settings = dict(settings)
    num_micro_batches = settings.pop("num_micro_batches", 1)
    args = GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        report_to=[],
        temperature=1.0,
        num_generations=3,
        max_completion_length=MAX_COMPLETION_LENGTH,
        per_device_train_batch_size=NUM_ROWS // num_micro_batches,
        gradient_accumulation_steps=num_micro_batches,
        **{"use_bias_correction_kl": False, **settings},
    )
    trainer = GRPOTrainer(
        model=str(folder),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["abc"] * NUM_ROWS}),
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
    )
    trainer.current_gradient_accumulation_steps = num_micro_batches  # otherwise set by the training loop
    trainer.model.train()
    return trainer


def make_inputs(trainer: GRPOTrainer) -> dict[str, torch.Tensor]:
    """Token ids, masks and log-probs: the policy's are the model's own, old and reference ones lie around them."""
    generator = torch.Generator().manual_seed(6)
    completion_mask = torch.arange(MAX_COMPLETION_LENGTH) < torch.tensor(COMPLETION_LENGTHS)[:, None]
    ids = torch.randint(0, 256, (NUM_ROWS, PROMPT_LENGTH + MAX_COMPLETION_LENGTH), generator=generator)
    prompt_mask = torch.ones(NUM_ROWS, PROMPT_LENGTH, dtype=torch.long)
    attention_mask = torch.cat([prompt_mask, completion_mask.long()], dim=1)
    with torch.no_grad():
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, attention_mask, MAX_COMPLETION_LENGTH
        )
    noise = torch.randn(2, *logps.shape, generator=generator)
    return {
        "prompt_ids": ids[:, :PROMPT_LENGTH],
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, PROMPT_LENGTH:],
        "completion_mask": completion_mask.long(),
        "advantages": torch.tensor(ADVANTAGES),
        "logps": logps,
        "old_per_token_logps": logps + 0.4 * noise[0],
        "ref_per_token_logps": logps + 0.6 * noise[1],
    }


def record(trainer: GRPOTrainer, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """TRL's loss (summed over the micro-batches, as its backward does), its gradient, and what it logs on clipping."""
    logps = inputs["logps"].clone().requires_grad_()
    micro_batches = trainer.current_gradient_accumulation_steps
    loss = torch.zeros(())
    for rows in torch.arange(NUM_ROWS).chunk(micro_batches):
        micro_batch = {name: tensor[rows] for name, tensor in inputs.items() if name != "logps"}
        micro_batch["num_items_in_batch"] = inputs["completion_mask"].sum()
        scores = (logps[rows], torch.zeros(len(rows), MAX_COMPLETION_LENGTH), None)
        trainer._get_per_token_logps_and_entropies = lambda *_, scores=scores, **__: scores
        loss = loss + trainer._compute_loss(trainer.model, micro_batch)
    (gradient,) = torch.autograd.grad(loss, logps)
    result = {"loss": loss.item(), "gradient": gradient.tolist()}
    if micro_batches == 1:  # the trainer's metrics of several micro-batches are means of means
        wanted = ("clip_ratio/low_mean", "clip_ratio/high_mean", "cispo_clip_ratio", "kl")
        result["metrics"] = {
            name: trainer._metrics["train"][name][0] for name in wanted if trainer._metrics["train"][name]
        }
    return result


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_tiny_model(folder)
        inputs = make_inputs(make_trainer(folder, BASE))
        cases = {}
        for case, changes in CASES.items():
            settings = {**BASE, **changes}
            cases[case] = {"settings": settings, **record(make_trainer(folder, settings), inputs)}
    recorded = {
        "versions": {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "inputs": {
            name: inputs[key].tolist()
            for name, key in [
                ("logps", "logps"),
                ("old_logps", "old_per_token_logps"),
                ("ref_logps", "ref_per_token_logps"),
                ("mask", "completion_mask"),
                ("advantages", "advantages"),
            ]
        },
        "cases": cases,
    }
    target = Path(__file__).with_name("policy_losses.json")
    target.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
