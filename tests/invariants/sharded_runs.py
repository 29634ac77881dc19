"""Short trainings with the weights sharded over two ranks (FSDP2), for the workers to import by name."""

from dataclasses import dataclass, field

from lightning.pytorch import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from short_runs import train


@dataclass
class WholeGradients(Callback):
    """The gradients of each update, put together from all ranks' pieces."""

    gradients: list = field(default_factory=list)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        named = pl_module.backbone.policy.named_parameters()
        self.gradients.append({name: p.grad.full_tensor().clone() for name, p in named if p.requires_grad})


def train_sharded(*args, **kwargs):
    """`train` as one of two ranks; returns the tokens of each micro-batch and the gradients of each update."""
    whole = WholeGradients()
    strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo")
    seen = train(*args, **kwargs, callbacks=[whole], trainer={"devices": 2, "strategy": strategy})
    return seen.tokens, whole.gradients
