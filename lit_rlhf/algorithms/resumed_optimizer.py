"""On a resume the config is the truth: a changed learning rate outlives the restored optimiser.

A checkpoint brings back the optimiser's parameter groups and the scheduler's attributes, and with them the settings of
the run that wrote it. So each checkpoint also holds what was *configured* then; what is configured differently now is
put back after the restore. What an optimiser or a schedule changed by itself is no setting and stays restored.
"""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch.optim import Optimizer

Settings = dict[str, Any]


class ConfiguredOptimizer(Callback):
    """Puts the configured optimiser and scheduler settings over the restored ones.

    A scheduled learning rate is scaled by new / old, so the schedule goes on from where it was.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> trainer = Trainer(callbacks=[ConfiguredOptimizer()], logger=False, enable_checkpointing=False)
    """

    def __init__(self) -> None:
        self._configured: list[Settings] = []  # now, one per optimiser and one per scheduler
        self._restored: list[Settings] = []  # the same, when the checkpoint was written

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read the settings before any checkpoint is restored into the optimisers."""
        self._configured = [_optimizer_settings(optimizer) for optimizer in trainer.optimizers]
        self._configured += [_plain(config.scheduler.state_dict()) for config in trainer.lr_scheduler_configs]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put back what is configured differently from when the checkpoint was written."""
        restored, self._restored = self._restored, []
        if len(restored) != len(self._configured):
            return  # no resume, or of a run that had a scheduler where this one has none
        num_optimizers = len(trainer.optimizers)
        for optimizer, now, then in zip(trainer.optimizers, self._configured, restored, strict=False):
            for group, new, old in zip(optimizer.param_groups, now["groups"], then["groups"], strict=True):
                _put_back_group(group, new, old)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        changes = zip(schedulers, self._configured[num_optimizers:], restored[num_optimizers:], strict=True)
        for scheduler, now, then in changes:
            _put_back_attributes(scheduler, now, then)
            scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Keep what is configured now, for whoever resumes from here."""
        return {"configured": self._configured}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was configured when the checkpoint was written."""
        self._restored = state_dict["configured"]


def _optimizer_settings(optimizer: Optimizer) -> Settings:
    groups = []
    for group in optimizer.param_groups:
        settings = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
        settings["lr"] = float(group.get("initial_lr", group["lr"]))  # before the schedule's first factor
        groups.append(_plain(settings))
    return {"groups": groups}


def _put_back_group(group: Settings, now: Settings, then: Settings) -> None:
    for name in sorted(now):
        old, new = then.get(name), now[name]
        if old == new:
            continue
        rank_zero_info(f"resume: {name} {old} -> {new}, as configured; the checkpoint's value is not used")
        if name != "lr":
            group[name] = new
        else:
            group["lr"] = group["lr"] * new / old if old else new
            if "initial_lr" in group:
                group["initial_lr"] = new


def _put_back_attributes(scheduler: Any, now: Settings, then: Settings) -> None:
    for inner, new, old in zip(
        getattr(scheduler, "_schedulers", []), now.get("_schedulers", []), then.get("_schedulers", []), strict=True
    ):
        _put_back_attributes(inner, new, old)
    for name in now:
        if not name.startswith("_") and name in then and now[name] != then[name]:
            setattr(scheduler, name, now[name])


def _plain(value: Any) -> Any:
    """Keep what default ``weights_only`` loading can read back; functions and tensors are no settings."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if _is_plain(item)}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | dict)
