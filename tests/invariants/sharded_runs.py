"""Short trainings with the weights sharded over two ranks (FSDP2), for the workers to import by name."""

from dataclasses import dataclass, field

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from short_runs import optimizer, quiet, train
from torch.distributed.tensor import DTensor

from lit_rlhf import algorithms
from lit_rlhf.data import PreferenceData


@dataclass
class WholeGradients(Callback):
    """The gradients of each update, put together from all ranks' pieces."""

    gradients: list = field(default_factory=list)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        named = pl_module.backbone.policy.named_parameters()
        gradients = {name: p.grad for name, p in named if p.requires_grad}
        self.gradients.append(
            {name: (g.full_tensor() if isinstance(g, DTensor) else g).clone() for name, g in gradients.items()}
        )


def as_one_of_two():
    """Settings of a `Trainer` in a process whose group already exists."""
    strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo")
    return {"devices": 2, "strategy": strategy}


def train_sharded(*args, **kwargs):
    """`train` as one of two ranks; returns the tokens of each micro-batch and the gradients of each update."""
    whole = WholeGradients()
    seen = train(*args, **kwargs, callbacks=[whole], trainer=as_one_of_two())
    return seen.tokens, whole.gradients


def train_on_pairs(name, model, pairs, sharded):
    """Two updates of three examples, a row per forward; returns their gradients."""
    whole = WholeGradients()
    with quiet():
        module = getattr(algorithms, name)(model=model, optimizer=optimizer("SGD", 0.5), max_tokens_per_forward=1)
        trainer = Trainer(
            accelerator="cpu",
            max_steps=2,
            limit_val_batches=0,
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            callbacks=[whole],
            **(as_one_of_two() if sharded else {"devices": 1}),
        )
        trainer.fit(module, PreferenceData(train=pairs, eval=pairs, num_eval=1, examples_per_update=3))
    return whole.gradients
