"""What can be checked before the first update, wired to the protocol."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lit_rlhf_callbacks.checks.devices import check_architecture, check_kernels
from lit_rlhf_callbacks.checks.overlap import check_overlap
from lit_rlhf_callbacks.checks.reward_function import check_reward_function, gravest
from lit_rlhf_callbacks.checks.weights import check_trainable
from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NUM_WINDOWS = 3  # of which rewards are looked at before a function is said to reject right answers


def device_checks(trainer: Trainer) -> Iterator[CheckResult]:
    """Ask the GPU, where there is one; a run on a CPU has nothing to check."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        step = trainer.global_step
        yield check_architecture(torch.cuda.get_device_capability(device), torch.cuda.get_arch_list(), step=step)
        yield check_kernels(device, step=step)


def weight_checks(trainer: Trainer, module: LightningModule) -> Iterator[CheckResult]:
    """Count what is trained."""
    yield check_trainable(module.parameters(), step=trainer.global_step)


def data_checks(trainer: Trainer, facts: dict[str, Any]) -> Iterator[CheckResult]:
    """Read what the data module found out about itself, into ``facts`` too."""
    data_facts = offered(trainer.datamodule, "data_facts")  # type: ignore[attr-defined]
    facts.update(data_facts() if data_facts is not None else {})
    if "num_eval_in_train" in facts:
        yield check_overlap(facts["num_eval_in_train"], facts["num_eval"], step=trainer.global_step)


class RewardFunctions:
    """Asks the reward functions at the start, and once more where what they gave in training decides."""

    def __init__(self) -> None:
        self._pending: list[Mapping[str, Any]] = []
        self._means: dict[str, list[float]] = {}

    def at_start(self, trainer: Trainer, module: LightningModule) -> Iterator[CheckResult]:
        """Ask all."""
        reward_probe = offered(module, "reward_probe")
        probes = reward_probe() if reward_probe is not None else []
        results = [self._ask(trainer, module, probe) for probe in probes]
        undecided = [result.status == "unknown" for result in results]
        self._pending = [probe for probe, waits in zip(probes, undecided, strict=True) if waits]
        if results:
            yield gravest(results)

    def after_update(
        self, trainer: Trainer, module: LightningModule, metrics: Mapping[str, float]
    ) -> Iterator[CheckResult]:
        """Collect what they gave, and decide after a few windows."""
        for probe in self._pending:
            mean = metrics.get(f"rewards/{probe['name']}/mean")
            if mean is not None:
                self._means.setdefault(probe["name"], []).append(mean)
        if self._pending and trainer.global_step == NUM_WINDOWS:
            pending, self._pending = self._pending, []
            means = [self._means.get(probe["name"], []) for probe in pending]
            yield gravest([self._ask(trainer, module, probe, m) for probe, m in zip(pending, means, strict=True)])

    def _ask(
        self, trainer: Trainer, module: LightningModule, probe: Mapping[str, Any], means: list[float] | None = None
    ) -> CheckResult:
        with observing(trainer, module):
            return check_reward_function(
                probe["name"],
                probe["call"],
                probe["cases"],
                judges=probe["judges"],
                means=means,
                step=trainer.global_step,
            )
