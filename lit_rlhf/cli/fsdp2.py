"""The strategy ``fsdp2``: Lightning's ModelParallelStrategy with every device in the data-parallel group."""

from lightning.pytorch.strategies import ModelParallelStrategy, StrategyRegistry


class FSDP2Strategy(ModelParallelStrategy):
    """Shards parameters, gradients and optimiser state over all devices of all nodes (FSDP2).

    Lightning's own default is the other way round: tensor parallelism within a node, which needs a plan per model.

    Args:
        save_distributed_checkpoint: Write a folder with one file per rank (fast, any size), instead of gathering
            everything into one file on rank 0.
    """

    def __init__(self, save_distributed_checkpoint: bool = True) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=save_distributed_checkpoint)

    def setup_environment(self) -> None:
        """Size the data-parallel group before the device mesh is built; only now is the number of nodes known."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()


StrategyRegistry.register("fsdp2", FSDP2Strategy, description="FSDP2 over all devices", override=True)
