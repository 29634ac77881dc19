"""When each exact check runs in a Lightning run, and what it is given."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer

from lit_rlhf_callbacks.symptoms.finding import CheckResult


class ExactChecks:
    """Run the exact checks of a training; a callback calls the methods at the hooks they are named after.

    All ranks must call them; all get the same results. Nothing here raises into training: a check that cannot run
    says so as ``unknown``. Weights, gradients, random states and modes are left as they are.

    Args:
        every_n_updates: How often to look after the first three updates.
    """

    def __init__(self, every_n_updates: int = 100) -> None:
        self.every_n_updates = every_n_updates

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> list[CheckResult]:
        """Check what is known before the first update (or after a resume)."""
        return []

    def before_update(self, trainer: Trainer, module: LightningModule) -> None:
        """Look at gradients and weights; call it in ``on_before_optimizer_step``."""

    def after_micro_batch(self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any) -> None:
        """Keep a micro-batch's tokens; call it in ``on_train_batch_end`` where no update was made."""

    def after_update(self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any) -> list[CheckResult]:
        """Check the update just made; call it in ``on_train_batch_end`` where ``global_step`` has grown."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return plain data and tensors for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
