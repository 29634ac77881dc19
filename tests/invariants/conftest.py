"""Real short trainings of every algorithm, through a real Trainer, for the properties that must hold for all."""

from dataclasses import dataclass, field

import pytest
import torch
from lightning.pytorch import Callback, Trainer

import lit_rlhf.algorithms as algorithms
from lit_rlhf.data import PromptData
from lit_rlhf.rollout import Sampling

ONLINE = [
    "Reinforce",
    "ReinforcePlusPlus",
    "RLOO",
    "GRPO",
    "DrGRPO",
    "DAPO",
    "GSPO",
    "CISPO",
    "SAPO",
    "MaxRL",
]


@dataclass
class Record(Callback):
    """What a run showed: each micro-batch's tokens, each update's metrics, and the weights in the end."""

    tokens: list = field(default_factory=list)
    metrics: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.tokens.append(outputs["tokens"])
        if outputs["metrics"]:
            self.metrics.append(dict(outputs["metrics"]))

    def on_train_end(self, trainer, pl_module):
        named = pl_module.backbone.policy.named_parameters()
        self.weights = {name: p.detach().clone() for name, p in named if p.requires_grad}


def spread(completion_ids, **columns):
    """A reward that differs within every group and is never negative."""
    return [(sum(ids) % 7) / 6 for ids in completion_ids]


def sgd(lr):
    return {"class_path": "torch.optim.SGD", "init_args": {"lr": lr}}


def train(name, *, updates=1, accumulate=1, prompts_per_phase=4, data=None, trainer=None, **settings):
    """Train ``updates`` updates with plain SGD, whose step is the gradient, and return what was seen."""
    record = Record()
    defaults = {
        "rewards": [spread],
        "group_size": 4,
        "sampling": Sampling(max_new_tokens=10),
        "optimizer": sgd(0.5),
    }
    module = getattr(algorithms, name)(**{**defaults, **settings})
    runner = Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_steps": updates,
            "accumulate_grad_batches": accumulate,
            "limit_val_batches": 0,
            "logger": False,
            "enable_progress_bar": False,
            "enable_checkpointing": False,
            "enable_model_summary": False,
            "callbacks": [record],
            **(trainer or {}),
        }
    )
    runner.fit(module, PromptData(prompts_per_phase=prompts_per_phase, **(data or {})))
    return record


@pytest.fixture(params=ONLINE)
def algorithm(request):
    """Every online algorithm's class name."""
    return request.param


@pytest.fixture
def train_run(monkeypatch):
    """A function that trains an algorithm and returns its `Record`."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    return train


@pytest.fixture
def largest_difference():
    """A function: the largest absolute difference between two runs' weights."""
    return lambda a, b: max(float((a.weights[name] - b.weights[name]).abs().max()) for name in a.weights)


@pytest.fixture
def all_tokens():
    """A function: a run's tokens as one tensor per name, micro-batches joined, rows sorted by prompt and content."""

    def join(record):
        width = max(tokens["input_ids"].shape[1] for tokens in record.tokens if tokens)
        pad = lambda value: torch.nn.functional.pad(value, (0, width - value.shape[1])) if value.dim() == 2 else value  # noqa: E731
        names = next(tokens for tokens in record.tokens if tokens)
        return {name: torch.cat([pad(tokens[name]) for tokens in record.tokens if tokens]) for name in names}

    return join
