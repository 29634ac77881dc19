"""Real short trainings through a real Trainer. Plain functions: tests get them as fixtures, workers import them."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import torch
import transformers
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy
from transformers import AutoTokenizer, GenerationConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lit_rlhf import algorithms, builtin
from lit_rlhf.data import PromptData
from lit_rlhf.rollout import Sampling


@dataclass(repr=False)
class Seen(Callback):
    """What a run showed: micro-batches, windows, gradients, and the weights before and after."""

    tokens: list = field(default_factory=list)  # of each micro-batch
    metrics: list = field(default_factory=list)  # of each update, without times
    gradients: list = field(default_factory=list)  # of each update, over all ranks
    start: dict = field(default_factory=dict)
    weights: dict = field(default_factory=dict)
    logged: dict = field(default_factory=dict)

    def on_train_start(self, trainer, pl_module):
        self.start = trained_weights(pl_module)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        named = pl_module.backbone.policy.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.requires_grad})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.tokens.append(outputs["tokens"])
        if outputs["metrics"]:
            self.metrics.append(untimed(outputs["metrics"]))

    def on_train_end(self, trainer, pl_module):
        self.weights = trained_weights(pl_module)
        self.logged = untimed({name: float(value) for name, value in trainer.logged_metrics.items()})


def trained_weights(module):
    return {name: p.detach().clone() for name, p in module.backbone.policy.named_parameters() if p.requires_grad}


def untimed(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def spread(completion_ids):
    """A reward that differs within nearly every group and is never negative."""
    return [sum(ids) % 7 / 6 for ids in completion_ids]


def spread_if_answered(completion_ids, answer):
    """The same for prompts whose answer is "yes", and one and the same score for all others."""
    return [sum(ids) % 7 / 6 if word == "yes" else 0.5 for ids, word in zip(completion_ids, answer, strict=True)]


def sometimes_none(completion_ids):
    """A reward that does not apply to every completion."""
    return [None if sum(ids) % 5 == 0 else sum(ids) % 7 / 6 for ids in completion_ids]


def constant(completion_ids):
    """A reward that teaches nothing."""
    return [0.5] * len(completion_ids)


def optimizer(kind, lr):
    return {"class_path": f"torch.optim.{kind}", "init_args": {"lr": lr}}


def train(
    name,
    *,
    model,
    data,
    updates=1,
    accumulate=1,
    trainer=None,
    callbacks=(),
    ckpt_path=None,
    change=None,
    kind=None,
    seed=7,
    **settings,
):
    """Train some updates with plain SGD, whose step is the gradient, and return what was `Seen`.

    Args:
        name: An algorithm's class name.
        model: Folder of the start policy.
        data: Settings of `PromptData`.
        updates: When to stop, counted from the start of the run and not of a resume.
        accumulate: Micro-batches per update.
        trainer: Further settings of the `Trainer`.
        callbacks: Callbacks besides the one that looks.
        ckpt_path: What to resume.
        change: A function that changes the module after its weights are loaded.
        kind: A class derived from the algorithm, to train instead.
        seed: The run's seed.
        settings: Further settings of the algorithm.
    """
    seen, short = Seen(), Sampling(max_new_tokens=10)
    defaults = {"group_size": 4, "rewards": [spread], "sampling": short, "eval_sampling": short}
    with mock.patch.dict(os.environ, PL_GLOBAL_SEED=str(seed)), quiet():
        settings = {**defaults, "optimizer": optimizer("SGD", 0.5), "model": model, **settings}
        module = (kind or getattr(algorithms, name))(**settings)
        if change is not None:
            module.configure_model()
            change(module)
        runner = Trainer(
            **{
                "accelerator": "cpu",
                "devices": 1,
                "max_steps": updates,
                "accumulate_grad_batches": accumulate,
                "limit_val_batches": 0,
                "num_sanity_val_steps": 0,
                "check_val_every_n_epoch": None,
                "inference_mode": False,
                "logger": False,
                "enable_progress_bar": False,
                "enable_checkpointing": False,
                "enable_model_summary": False,
                "callbacks": [seen, *callbacks],
                **(trainer or {}),
            }
        )
        runner.fit(module, PromptData(**{"prompts_per_phase": 4, **data}), ckpt_path=ckpt_path)
    return seen


def train_one_of_two(*args, **kwargs):
    """`train` in a process whose group already exists, as one of two ranks."""
    strategy = DDPStrategy(process_group_backend="gloo")
    return train(*args, **{**kwargs, "trainer": {"devices": 2, "strategy": strategy, **kwargs.get("trainer", {})}})


def rows_by_content(run):
    """Per-token tensors of every row that was trained, by prompt id and tokens, in the order of training.

    A key's list holds one dict per time that its row was trained; tensors are cut to the completion. ``run`` may be a
    list, of what each rank has seen.
    """
    rows = {}
    for tokens in (tokens for part in (run if isinstance(run, list) else [run]) for tokens in part.tokens if tokens):
        for row in range(len(tokens["input_ids"])):
            ids = tokens["input_ids"][row][tokens["attention_mask"][row]].tolist()
            mask = tokens["completion_mask"][row]
            seen = {k: v[row][mask] for k, v in tokens.items() if v.dim() == 2 and k != "attention_mask"}
            key = (int(tokens["prompt_ids"][row]), tuple(ids))
            rows.setdefault(key, []).append({**seen, "rewards": tokens["rewards"][row]})
    return rows


def deviation(run, other):
    """Largest difference between two runs' gradients, over all updates, relative to the largest gradient."""
    largest = max(float(g.abs().max()) for gradients in run.gradients for g in gradients.values())
    pairs = zip(run.gradients, other.gradients, strict=True)
    return max(float((mine[name] - its[name]).abs().max()) for mine, its in pairs for name in mine) / largest


def same_samples(train_one, train_other, seeds=(7, 8, 9)):
    """Train two runs that must agree, and return them.

    After the first update weights agree up to rounding, which moves one sampled token in some 100,000 over a boundary
    of the cumulative distribution. Not with every seed, so the first that shows the same samples is taken.
    """
    for seed in seeds:
        one, other = train_one(seed=seed), train_other(seed=seed)
        if rows_by_content(one).keys() == rows_by_content(other).keys():
            return one, other
    raise AssertionError(f"the two runs sampled different tokens with every seed of {seeds}")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what Lightning and transformers say at every start; warnings of ours go on to pytest."""
    logger = logging.getLogger("lightning.pytorch")
    level, shows_progress = logger.level, transformers.utils.logging.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec")
        warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")  # the reference
        warnings.filterwarnings("ignore", message="The dirpath has changed|Checkpoint directory .* exists")
        try:
            yield
        finally:
            logger.setLevel(level)
            if shows_progress:
                transformers.utils.logging.enable_progress_bar()


def write_model(folder, architecture="llama", *, seed=0, ends=True, **settings):
    """Write a tiny random model with the embedded tokenizer; it ends its completions now and then, or hardly ever."""
    tokenizer = AutoTokenizer.from_pretrained(builtin.model_folder("tiny"))
    ids = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if architecture == "gpt2":
            shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
            model = GPT2LMHeadModel(GPT2Config(**{**shape, **ids, **settings}))
        else:
            shape = {
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 64,
            }
            model = LlamaForCausalLM(LlamaConfig(**{**shape, **ids, **settings}))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.mul_(10)  # far from uniform, so that a mistake shows
    with quiet():
        model.save_pretrained(folder)
    # One token of 261 would cut off nearly every completion: take every eighth as an end.
    stop_ids = [tokenizer.eos_token_id, *(range(8, len(tokenizer), 8) if ends else [])]
    GenerationConfig(eos_token_id=stop_ids).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_prompts(path, answers):
    """Write one prompt per answer, of different lengths, and return settings of `PromptData` that read them."""
    rows = [{"prompt": "say " + "abc"[n % 3] * (1 + n * 5 % 7), "answer": answer} for n, answer in enumerate(answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = path.with_suffix(".held_out.jsonl")
    held_out.write_text("".join(json.dumps({"prompt": f"tell {n}", "answer": "yes"}) + "\n" for n in range(3)))
    return {"prompts": str(path), "eval_prompts": str(held_out)}
