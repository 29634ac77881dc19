"""When each exact check runs in a Lightning run, and what it is given."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import distributed

from lit_rlhf_callbacks.checks.first_window import identity_checks, label_checks
from lit_rlhf_callbacks.checks.look import Look
from lit_rlhf_callbacks.checks.repeated import Repeated
from lit_rlhf_callbacks.checks.result import unknown
from lit_rlhf_callbacks.checks.tokens import Tokens, join_tokens
from lit_rlhf_callbacks.checks.weights import (
    WeightSample,
    check_trainable,
    check_update,
    measure_change,
    sample_weights,
)
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.symptoms.finding import CheckResult

FIRST_UPDATES = 3
_GRAVITY = ("unknown", "ok", "failed")


class ExactChecks:
    """Run the exact checks of a training; a callback calls the methods at the hooks they are named after.

    All ranks must call them; all get the same results. Nothing here raises into training: a check that cannot run
    says so as ``unknown``. Weights, gradients, random states and modes are left as they are.

    Args:
        every_n_updates: How often to look after the first three updates.
    """

    def __init__(self, every_n_updates: int = 100) -> None:
        self.every_n_updates = every_n_updates
        self.repeated = Repeated()
        self._parts: list[Tokens] = []
        self._weights: WeightSample | None = None
        self._lr = 0.0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> list[CheckResult]:
        """Check what is known before the first update (or after a resume)."""
        step = trainer.global_step
        checks = [("trainable", lambda: check_trainable(module.parameters(), step=step))]
        return _agreed(_guarded(name, check, step) for name, check in checks)

    def before_update(self, trainer: Trainer, module: LightningModule) -> None:
        """Look at gradients and weights; call it in ``on_before_optimizer_step``."""
        if self.is_due(trainer.global_step + 1):
            self._weights = sample_weights(module.parameters())
            self._lr = max(float(group["lr"]) for group in trainer.optimizers[0].param_groups)

    def after_micro_batch(self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any) -> None:
        """Keep a micro-batch's tokens; call it in ``on_train_batch_end`` where no update was made."""
        if self.is_due(trainer.global_step + 1):
            self._parts.append(_tokens_of(outputs))

    def after_update(self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any) -> list[CheckResult]:
        """Check the update just made; call it in ``on_train_batch_end`` where ``global_step`` has grown."""
        step = trainer.global_step
        parts, self._parts = [*self._parts, _tokens_of(outputs)], []
        if not self.is_due(step):
            return []
        look = _look(trainer, module, step, join_tokens(parts), outputs)
        results: list[CheckResult] = []
        if step == 1:
            results += _guarded_all("first_window", lambda: label_checks(look), step)
            results += _guarded_all("first_window", lambda: identity_checks(look), step)
        results += _guarded_all("repeated", lambda: self.repeated.checks(look), step)
        if self._weights is not None:
            results.append(_guarded("update_reaches_weights", lambda: self._check_update(look), step))
            self._weights = None
        return _agreed(results)

    def is_due(self, step: int) -> bool:
        """Whether the update that makes ``global_step`` equal `step` is looked at."""
        return step <= FIRST_UPDATES or step % self.every_n_updates == 0

    def state_dict(self) -> dict[str, Any]:
        """Return plain data and tensors for a checkpoint."""
        return {"repeated": self.repeated.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.repeated.load_state_dict(state["repeated"])

    def _check_update(self, look: Look) -> CheckResult:
        assert self._weights is not None
        sample = self._weights
        advantages = look.tokens.get("advantages")
        return check_update(
            measure_change(sample),
            lr=self._lr,
            dtype=sample.parameters[0].dtype if sample.parameters else torch.float32,
            is_scaled=look.trainer.precision == "16-mixed",
            has_signal=None if advantages is None else bool(advantages.any()),
            step=look.step,
        )


def _tokens_of(outputs: Any) -> Tokens:
    return outputs.get("tokens", {}) if isinstance(outputs, dict) else {}


def _look(trainer: Trainer, module: LightningModule, step: int, tokens: Tokens, outputs: Any) -> Look:
    run_facts = offered(module, "run_facts")
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    returned = outputs.get("metrics", {}) if isinstance(outputs, dict) else {}
    has_rows = torch.tensor(float("input_ids" in tokens and len(tokens["input_ids"]) > 0), device=module.device)
    can_score = bool(trainer.strategy.reduce(has_rows, reduce_op="sum") == trainer.world_size)
    facts = run_facts() if run_facts is not None else {}
    return Look(trainer, module, step, tokens, {**logged, **returned}, facts, can_score)


def _guarded(name: str, check: Callable[[], CheckResult], step: int) -> CheckResult:
    """Run a check; what it raises is its own failure and no finding about the run."""
    try:
        return check()
    except Exception as error:  # user code is behind the protocol, and training must go on
        return unknown(name, step, f"the check raised {type(error).__name__}: {error}")


def _guarded_all(name: str, checks: Callable[[], Iterator[CheckResult]], step: int) -> list[CheckResult]:
    results: list[CheckResult] = []
    try:
        results.extend(checks())
    except Exception as error:  # as in `_guarded`
        results.append(unknown(name, step, f"the check raised {type(error).__name__}: {error}"))
    return results


def _agreed(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the gravest result of each check over all ranks, in the same order everywhere."""
    mine = list(results)
    if not (distributed.is_available() and distributed.is_initialized()):
        return mine
    everywhere: list[list[CheckResult]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everywhere, mine)
    gravest: dict[str, CheckResult] = {}
    for result in (result for rank in everywhere for result in rank):
        known = gravest.setdefault(result.name, result)
        if _GRAVITY.index(result.status) > _GRAVITY.index(known.status):
            gravest[result.name] = result
    return list(gravest.values())
