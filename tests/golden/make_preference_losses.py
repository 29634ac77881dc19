"""Record what TRL's preference trainers make of a few rows, for the tests of our preference losses.

Run in an environment of its own (`pip install trl==1.16.0`): `python tests/golden/make_preference_losses.py`. It needs
no network: the reference is the embedded model, the policy the same with all weight matrices scaled. The trainers are
TRL's own, and so is everything from the rows to the loss; only the forward is replaced, after it has been run once, by
one that returns what it returned with a leaf tensor in it, so that the gradient with respect to each token's
log-probability can be recorded. A newly trained embedded model needs new numbers.
"""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

MODEL = Path(__file__).parents[2] / "lit_rlhf" / "builtin" / "tiny"
WEIGHT_SCALE = 0.87  # of the policy's matrices: log-ratios of some nats, up and down, and a positive KL
WORDS = ["zuq", "stone", "tol", "gramil", "moon"]
PAIRS = {  # in the embedded model's own template, completions of uneven length, not all of them preferred rightly
    "prompt": [f"<bos><user>reverse {word}<assistant>" for word in WORDS],
    "chosen": ["quz", "eno", "the word is lot", "limarg", "noom"],
    "rejected": ["zuqz", "enots", "lot", "limarq", "moon"],
}
JUDGED = {
    "prompt": PAIRS["prompt"],
    "completion": ["quz", "eno", "lot", "limarq", "noom"],
    "label": [True, False, True, False, True],
}
# Settings of TRL's; all it would otherwise take from its defaults and that changes the loss.
DPO = {"loss_type": ["sigmoid"], "beta": 0.1, "label_smoothing": 0.0, "f_divergence_type": "reverse_kl"}
CPO = {"loss_type": "sigmoid", "beta": 0.1, "cpo_alpha": 1.0, "simpo_gamma": 0.5, "label_smoothing": 0.0}
KTO = {"loss_type": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sigmoid": ("dpo", DPO),
    "sigmoid_label_smoothing": ("dpo", {**DPO, "label_smoothing": 0.2}),
    "sigmoid_sft": ("dpo", {**DPO, "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}),
    "forward_kl": ("dpo", {**DPO, "f_divergence_type": "forward_kl"}),
    "js_divergence": ("dpo", {**DPO, "f_divergence_type": "js_divergence"}),
    "alpha_divergence": (
        "dpo",
        {**DPO, "f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.3},
    ),
    "robust": ("dpo", {**DPO, "loss_type": ["robust"], "label_smoothing": 0.2}),
    "sigmoid_norm": ("dpo", {**DPO, "loss_type": ["sigmoid_norm"], "beta": 2.0}),
    "ipo": ("dpo", {**DPO, "loss_type": ["ipo"]}),
    "hinge": ("dpo", {**DPO, "loss_type": ["hinge"], "beta": 0.2}),
    "apo_zero": ("dpo", {**DPO, "loss_type": ["apo_zero"]}),
    "apo_down": ("dpo", {**DPO, "loss_type": ["apo_down"]}),
    "cpo": ("cpo", CPO),
    "cpo_label_smoothing": ("cpo", {**CPO, "label_smoothing": 0.2}),
    "simpo": ("cpo", {**CPO, "loss_type": "simpo", "beta": 2.0, "cpo_alpha": 0.0, "simpo_gamma": 1.0}),
    "orpo": ("orpo", {"beta": 0.1}),
    "kto": ("kto", KTO),
    "kto_weighted": ("kto", {**KTO, "beta": 0.3, "desirable_weight": 0.9, "undesirable_weight": 1.33}),
}
TRAINERS = {
    "dpo": (DPOTrainer, DPOConfig),
    "cpo": (CPOTrainer, CPOConfig),
    "orpo": (ORPOTrainer, ORPOConfig),
    "kto": (KTOTrainer, KTOConfig),
}


def load_policy() -> Any:
    policy = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter.mul_(WEIGHT_SCALE)
    return policy


def make_trainer(kind: str, settings: dict[str, Any], folder: Path) -> Any:
    trainer_class, config_class = TRAINERS[kind]
    args = config_class(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        per_device_train_batch_size=len(PAIRS["prompt"]),  # KTO mismatches prompts and completions within a batch
        **settings,
    )
    rows = JUDGED if kind == "kto" else PAIRS
    reference = {"ref_model": AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)}
    trainer = trainer_class(
        model=load_policy(),
        args=args,
        train_dataset=Dataset.from_dict(rows),
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        **(reference if kind in ("dpo", "kto") else {}),
    )
    trainer.model.train()  # the embedded model has no dropout
    return trainer


def aligned(values: Tensor) -> list[list[float]]:
    """TRL's ``[S, T - 1]`` as our ``[S, T]``, whose first column, which nothing predicts, is 0."""
    rows = torch.nn.functional.pad(values.detach(), (1, 0)).tolist()
    return [[float(f"{value:.9g}") for value in row] for row in rows]


def stand_in(logps: Tensor) -> Any:
    """What TRL's patched models return, with the given log-probabilities."""
    zeros = torch.zeros_like(logps)
    return SimpleNamespace(log_probs=logps, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


def fused_logps(model: Any, ids: Tensor, attention_mask: Tensor, mask: Tensor) -> Tensor:
    with torch.no_grad():
        labels = ids.masked_fill(mask == 0, -100)
        return model(input_ids=ids, attention_mask=attention_mask, labels=labels, fused_lm_head=True).log_probs


def record_dpo(trainer: DPOTrainer) -> dict[str, Any]:
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(len(PAIRS["prompt"]))])
    tensors = batch["input_ids"], batch["attention_mask"], batch["completion_mask"]
    logps = fused_logps(trainer.model, *tensors).requires_grad_()
    ref_logps = fused_logps(trainer.ref_model, *tensors)
    trainer.ref_model = lambda **_: stand_in(ref_logps)
    masked_logps = logps * batch["completion_mask"][:, 1:]  # as TRL's head masks them
    loss = trainer._compute_loss(lambda **_: stand_in(masked_logps), batch, return_outputs=False)
    (gradient,) = torch.autograd.grad(loss, logps)
    return {
        "loss": loss.item(),
        "gradient": aligned(gradient),
        "inputs": {**in_common(*tensors), "logps": aligned(logps), "ref_logps": aligned(ref_logps)},
        "metrics": {name: trainer._metrics["train"][name][0] for name in ("rewards/chosen", "rewards/rejected")},
    }


def record_kto(trainer: KTOTrainer) -> dict[str, Any]:
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(len(JUDGED["prompt"]))])
    tensors = batch["input_ids"], batch["attention_mask"], batch["completion_mask"]
    mismatched = batch["KL_input_ids"], batch["KL_attention_mask"], batch["KL_completion_mask"]
    logps, ref_logps = fused_logps(trainer.model, *tensors).requires_grad_(), fused_logps(trainer.ref_model, *tensors)
    kl_logps, ref_kl_logps = fused_logps(trainer.model, *mismatched), fused_logps(trainer.ref_model, *mismatched)

    def forward(matched: Tensor, other: Tensor) -> Any:
        return lambda input_ids, **_: stand_in(matched if input_ids is batch["input_ids"] else other)

    trainer.ref_model = forward(ref_logps, ref_kl_logps)
    masked_logps = logps * batch["completion_mask"][:, 1:]  # as TRL's head masks them
    loss = trainer._compute_loss(forward(masked_logps, kl_logps), batch, return_outputs=False)
    (gradient,) = torch.autograd.grad(loss, logps)
    inputs = {**in_common(*tensors), "logps": aligned(logps), "ref_logps": aligned(ref_logps)}
    others = {"logps": aligned(kl_logps), "ref_logps": aligned(ref_kl_logps)}
    return {
        "loss": loss.item(),
        "gradient": aligned(gradient),
        "inputs": {**inputs, "label": batch["label"].tolist(), "mismatched": {**in_common(*mismatched), **others}},
        "metrics": {"kl": trainer._metrics["train"]["kl"][0]},
    }


def record_without_reference(trainer: CPOTrainer | ORPOTrainer) -> dict[str, Any]:
    rows = [trainer.train_dataset[i] for i in range(len(PAIRS["prompt"]))]
    batch = trainer.data_collator(rows)
    seen = {}

    def run(input_ids: Tensor, attention_mask: Tensor, **_: Any) -> Any:
        seen.update(ids=input_ids, attention_mask=attention_mask)
        return trainer.model(input_ids, attention_mask=attention_mask)

    with torch.no_grad():
        trainer.get_batch_loss_metrics(run, batch)
        logits = run(seen["ids"], seen["attention_mask"]).logits
    next_ids = seen["ids"][:, 1:, None]
    logps = logits[:, :-1].double().log_softmax(-1).gather(-1, next_ids)[..., 0].requires_grad_()

    # These trainers want logits. Two tokens share all probability, the wanted one and its neighbour, so that the
    # log-softmax of the first is the leaf, and has gradient 1.
    neighbours = (next_ids + 1) % logits.shape[-1]
    leaf_logits = torch.full_like(logits[:, :-1], -1e4, dtype=torch.double)
    leaf_logits = leaf_logits.scatter(-1, next_ids, logps[..., None])
    leaf_logits = leaf_logits.scatter(-1, neighbours, torch.log(-torch.expm1(logps))[..., None])
    leaf_logits = torch.cat([leaf_logits, leaf_logits[:, -1:]], dim=1)
    loss, metrics = trainer.get_batch_loss_metrics(lambda *_, **__: SimpleNamespace(logits=leaf_logits), batch)
    (gradient,) = torch.autograd.grad(loss, logps)
    labels = trainer.concatenated_inputs(batch, padding_value=0)["concatenated_labels"]
    wanted = ("nll_loss", "log_odds_chosen", "rewards/chosen", "rewards/rejected")
    return {
        "loss": loss.item(),
        "gradient": aligned(gradient),
        "inputs": {**in_common(seen["ids"], seen["attention_mask"], labels != -100), "logps": aligned(logps)},
        "metrics": {name: float(metrics[name]) for name in wanted if name in metrics},
    }


def in_common(ids: Tensor, attention_mask: Tensor, mask: Tensor) -> dict[str, Any]:
    return {"input_ids": ids.tolist(), "attention_mask": attention_mask.bool().tolist(), "mask": mask.bool().tolist()}


def main() -> None:
    torch.set_num_threads(1)
    record = {"dpo": record_dpo, "cpo": record_without_reference, "orpo": record_without_reference, "kto": record_kto}
    inputs: dict[str, Any] = {}
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, (kind, settings) in CASES.items():
            recorded = record[kind](make_trainer(kind, settings, Path(folder)))
            inputs[kind] = recorded.pop("inputs")  # the same for all cases of a trainer
            cases[case] = {"trainer": kind, "settings": settings, **recorded}
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    target = Path(__file__).with_name("preference_losses.json")
    recorded = {"versions": versions, "weight_scale": WEIGHT_SCALE, "inputs": inputs, "cases": cases}
    target.write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
