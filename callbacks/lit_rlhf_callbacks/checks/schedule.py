"""When each exact check runs in a Lightning run, and what it is given."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import distributed

from lit_rlhf_callbacks.checks.at_start import RewardFunctions, data_checks, device_checks, weight_checks
from lit_rlhf_callbacks.checks.first_window import identity_checks, label_checks
from lit_rlhf_callbacks.checks.look import Look
from lit_rlhf_callbacks.checks.ranks import check_ranks, hash_tensor, hash_weights
from lit_rlhf_callbacks.checks.repeated import Repeated, kl_checks
from lit_rlhf_callbacks.checks.result import unknown
from lit_rlhf_callbacks.checks.reward_looks import RewardLooks
from lit_rlhf_callbacks.checks.seam import Seam
from lit_rlhf_callbacks.checks.tokens import Tokens, join_tokens
from lit_rlhf_callbacks.checks.weights import (
    WeightSample,
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
    says so as ``unknown``, and since it may run on other ranks, ranks talk to each other only outside of checks.
    Weights, gradients, random states and modes are left as they are.

    Args:
        every_n_updates: How often to look after the first three updates.
    """

    def __init__(self, every_n_updates: int = 100) -> None:
        self.every_n_updates = every_n_updates
        self.repeated = Repeated()
        self.reward_functions = RewardFunctions()
        self.reward_looks = RewardLooks()
        self.seam = Seam()
        self._parts: list[Tokens] = []
        self._weights: WeightSample | None = None
        self._lr = 0.0
        self._data_facts: dict[str, Any] = {}

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> list[CheckResult]:
        """Check what is known before the first update (or after a resume)."""
        step = trainer.global_step
        results = _guarded("gpu_kernels", lambda: device_checks(trainer), step)
        results += _guarded("trainable", lambda: weight_checks(trainer, module), step)
        results += _guarded("held_out_prompts", lambda: data_checks(trainer, self._data_facts), step)
        if step == 0:
            results += _guarded("reward_function", lambda: self.reward_functions.at_start(trainer, module), step)
        results += _guarded("resume", lambda: self.seam.at_start(trainer), step)
        return _agreed(results)

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
        step, is_resumed = trainer.global_step, self.seam.is_open
        parts, self._parts = [*self._parts, _tokens_of(outputs)], []
        results = _guarded("resume", lambda: self.seam.after_update(trainer, parts[-1], self._lr), step)
        results += _guarded("reward_model_order", lambda: self.reward_looks.note(parts[-1]), step)
        if not self.is_due(step):
            return _agreed(results) if is_resumed else []
        look = Look(trainer, module, step)
        results += _guarded("window", lambda: _fill(look, parts, outputs, self._data_facts), step)
        look.agree()
        checks = {
            "reference_unmoved": lambda: self.repeated.reference(look),
            "sampler_agrees": lambda: self.repeated.sampler(look),
            "update_direction": lambda: self.repeated.direction(look),
            "kl_estimator": lambda: kl_checks(look),
            "reward_model_swap": lambda: self.reward_looks.checks(look),
            "update_reaches_weights": lambda: self._check_update(look),
            "reward_function": lambda: self.reward_functions.after_update(trainer, module, look.metrics),
        }
        if step == 1:
            first = {"supervised_tokens": lambda: label_checks(look), "start_values": lambda: identity_checks(look)}
            checks = {**first, **checks}
        for name, check in checks.items():
            results += _guarded(name, check, step)
        if step == 1 or step % self.every_n_updates == 0:
            results += _rank_checks(look)
        return _agreed(results)

    def is_due(self, step: int) -> bool:
        """Whether the update that makes ``global_step`` equal `step` is looked at."""
        return step <= FIRST_UPDATES or step % self.every_n_updates == 0

    def state_dict(self) -> dict[str, Any]:
        """Return plain data and tensors for a checkpoint."""
        return {
            "repeated": self.repeated.state_dict(),
            "reward_looks": self.reward_looks.state_dict(),
            "seam": self.seam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.repeated.load_state_dict(state["repeated"])
        self.reward_looks.load_state_dict(state["reward_looks"])
        self.seam.load_state_dict(state["seam"])

    def _check_update(self, look: Look) -> Iterator[CheckResult]:
        sample, self._weights = self._weights, None
        if sample is None:
            return
        yield check_update(
            measure_change(sample),
            lr=self._lr,
            dtype=sample.parameters[0].dtype if sample.parameters else torch.float32,
            is_scaled=look.trainer.precision == "16-mixed",
            has_signal=has_signal(look.tokens, look.metrics),
            step=look.step,
        )


def has_signal(tokens: Tokens, metrics: Mapping[str, float]) -> bool | None:
    """Tell whether a window of reinforcement learning can teach; None: it is none.

    It cannot where all advantages are zero, nor where every ratio is clipped, as GSPO's tight bounds do now and then.
    """
    if "advantages" not in tokens:
        return None
    return bool(tokens["advantages"].any()) and metrics.get("clip_ratio/region_mean", 0.0) < 1.0


def _tokens_of(outputs: Any) -> Tokens:
    return outputs.get("tokens", {}) if isinstance(outputs, dict) else {}


def _fill(look: Look, parts: list[Tokens], outputs: Any, data_facts: dict[str, Any]) -> Iterator[CheckResult]:
    """Read what this rank shows of a window; all of it is the user's, and may be anything."""
    logged = {name: float(value) for name, value in look.trainer.callback_metrics.items()}
    returned = outputs.get("metrics", {}) if isinstance(outputs, dict) else {}
    look.metrics = {**logged, **returned}
    run_facts = offered(look.module, "run_facts")
    look.facts = {**data_facts, **(run_facts() if run_facts is not None else {})}
    look.take(join_tokens(parts))
    yield from ()


def _rank_checks(look: Look) -> list[CheckResult]:
    if look.trainer.world_size == 1:
        return []
    mine: list[tuple[int | None, int | None]] = []

    def hash_mine() -> Iterator[CheckResult]:
        data = hash_tensor(look.tokens["input_ids"]) if look.has("input_ids") else None
        mine.append((data, None if look.is_sharded else hash_weights(look.module)))
        yield from ()

    results = _guarded("ranks", hash_mine, look.step)
    everywhere = [(None, None)] * look.trainer.world_size
    distributed.all_gather_object(everywhere, mine[0] if mine else (None, None))
    data, weights = zip(*everywhere, strict=True)
    return [*results, check_ranks(data, weights, step=look.step)]


def _guarded(name: str, checks: Callable[[], Iterable[CheckResult]], step: int) -> list[CheckResult]:
    """Run checks; what they raise is their own failure and no finding about the run."""
    results: list[CheckResult] = []
    try:
        results.extend(checks())
    except Exception as error:  # user code is behind the protocol, and training must go on
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
