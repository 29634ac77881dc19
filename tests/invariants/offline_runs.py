"""Real short trainings on given examples, of every kind. Plain functions: tests import them, and so do workers."""

import os
import random
from dataclasses import dataclass, field
from unittest import mock

import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from short_runs import Seen, optimizer, quiet

from lit_rlhf.algorithms import preference, reward_model, sft
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.window_loader import WindowLoader

REWARD_MODELS = ["BradleyTerry", "PlackettLuce", "OutcomeReward", "ProcessReward"]


def algorithm_class(name):
    """Find an offline algorithm by its class name."""
    return next(getattr(module, name) for module in (sft, preference, reward_model) if hasattr(module, name))


def make_examples(kind, num, seed=0):
    """Make examples of uneven length, as a DataModule of that kind would."""
    rng = random.Random(f"{kind} {num} {seed}")

    def sample(prompt):
        completion = [rng.randrange(10, 250) for _ in range(rng.randint(1, 12))]
        return Sample(prompt + completion, [False] * len(prompt) + [True] * len(completion), len(prompt))

    examples = []
    for row in range(num):
        prompt = [rng.randrange(10, 250) for _ in range(rng.randint(1, 5))]
        num_samples = {"paired": 2, "ranked": rng.randint(2, 4)}.get(kind, 1)
        samples, label, steps = [sample(prompt) for _ in range(num_samples)], None, ()
        if kind == "paired" and row % 3:
            label = rng.random()  # a margin; every third pair has none
        if kind == "unpaired":
            label = float(rng.random() < 0.5)
        if kind == "stepwise":
            [whole] = samples
            ends = [place for place in range(len(prompt), len(whole)) if place % 2 or place == len(whole) - 1]
            samples = [Sample(whole.ids, [place in ends for place in range(len(whole))], len(prompt))]
            steps = [(place, float(rng.random() < 0.5)) for place in ends]
        examples.append(Example(row, samples, label, steps))
    return examples


class GivenExamples(LightningDataModule):
    """Examples that need no tokenizer."""

    def __init__(self, num, examples_per_update, num_eval):
        super().__init__()
        self.num, self.examples_per_update, self.num_eval = num, examples_per_update, num_eval
        self.num_micro_batches, self.max_tokens, self.packing = 1, None, False

    def tokenise(self, tokenizer, *, kind, context_length=None):
        self.examples, self.held_out = make_examples(kind, self.num), make_examples(kind, self.num_eval, seed=1)

    def train_dataloader(self):
        return self._loader(self.examples, self.examples_per_update, self.num_micro_batches)

    def val_dataloader(self):
        return self._loader(self.held_out, 4, 1)

    def _loader(self, examples, examples_per_window, num_micro_batches):
        place = self.trainer.distributed_sampler_kwargs
        rank, world_size = (place["rank"], place["num_replicas"]) if place else (0, 1)
        return WindowLoader(
            examples, examples_per_window, num_micro_batches, self.max_tokens, 0, rank, world_size, packing=self.packing
        )


@dataclass(repr=False)
class SeenWithHead(Seen):
    """What a run showed, the head's gradients and the held-out metrics included."""

    held_out: list = field(default_factory=list)

    def on_train_start(self, trainer, pl_module):
        self.start = _trained(pl_module)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        named = pl_module.backbone.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.requires_grad})

    def on_train_end(self, trainer, pl_module):
        self.weights = _trained(pl_module)

    def on_validation_end(self, trainer, pl_module):
        logged = {name: float(value) for name, value in trainer.logged_metrics.items()}
        self.held_out.append({name: value for name, value in logged.items() if name.startswith("eval/")})


def train_offline(
    name, *, model, num=13, examples_per_update=13, num_eval=5, updates=1, accumulate=1, trainer=None, **settings
):
    """Train some updates with plain SGD and return what was seen.

    Args:
        name: An algorithm's class name.
        model: Folder of the start policy.
        num: Examples to train on.
        examples_per_update: How many of them make an update.
        num_eval: Held-out examples.
        updates: When to stop.
        accumulate: Micro-batches per update.
        trainer: Further settings of the `Trainer`.
        settings: Further settings of the algorithm.
    """
    seen = SeenWithHead()
    with mock.patch.dict(os.environ, PL_GLOBAL_SEED="7"), quiet():
        settings = {"optimizer": optimizer("SGD", 0.05), "dropout": False, "model": model, **settings}
        torch.manual_seed(7)  # draws the head
        module = algorithm_class(name)(**settings)
        runner = Trainer(
            **{
                "accelerator": "cpu",
                "devices": 1,
                "max_steps": updates,
                "accumulate_grad_batches": accumulate,
                "val_check_interval": updates * accumulate,
                "check_val_every_n_epoch": None,
                "num_sanity_val_steps": 0,
                "inference_mode": False,
                "logger": False,
                "enable_progress_bar": False,
                "enable_checkpointing": False,
                "enable_model_summary": False,
                "callbacks": [seen],
                **(trainer or {}),
            }
        )
        runner.fit(module, GivenExamples(num, examples_per_update, num_eval))
    return seen


def train_offline_one_of_two(*args, **kwargs):
    """`train_offline` in a process whose group already exists, as one of two ranks."""
    strategy = DDPStrategy(process_group_backend="gloo")
    return train_offline(*args, **kwargs, trainer={"devices": 2, "strategy": strategy})


def _trained(module):
    return {name: p.detach().clone() for name, p in module.backbone.named_parameters() if p.requires_grad}
