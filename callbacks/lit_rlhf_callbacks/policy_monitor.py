"""What every update did to the policy: distance, ratios, lengths, norms, speed."""

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from lit_rlhf_callbacks.drift import Probe, make_probe, measure_drift, probe_from_batch
from lit_rlhf_callbacks.policy_metrics import Sums, combine, num_scored, pack, token_metrics, unpack
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.published import Published
from lit_rlhf_callbacks.run_clock import run_clock
from lit_rlhf_callbacks.weight_change import WeightChange
from lit_rlhf_callbacks.window_clock import WindowClock

_NEEDS = {
    "kl": "ref_logps",
    "ratio/mean": "old_logps",
    "sampling/sampling_logp_difference/mean": "sampler_logps",
    "advantages/frac_nonzero": "advantages",
}


class PolicyMonitor(Callback):
    """Measure each window from the ``tokens`` that ``training_step`` returns, and every update from the weights.

    Metrics are means over the window's own tokens or completions, over all micro-batches and ranks, reduced once per
    update. They are added to ``outputs["metrics"]``, and logged; what the module computes itself is left alone.
    Measured, where its input exists: ``kl`` by all estimators, ``ratio``, ``policy/approxkl_avg``, the difference
    between learner and sampler, completion lengths, non-zero advantages, ``grad_norm`` before clipping,
    ``learning_rate``, ``tokens_per_second``, ``hours`` and their parts ``time/update``, ``time/evaluation``,
    ``time/checkpoint``, ``device_hours``; every few updates the share of weights an
    update changes, and without a reference ``drift/forward_kl``: the start policy against the current one on a fixed
    probe set (the first rows trained on), which needs the module's ``score(tokens)`` or a Hugging Face model.
    What could not be checked is said once.

    Args:
        every_n_updates: How often weights are compared and the probe set is scored.

    Example::

        Trainer(callbacks=[PolicyMonitor(), RunFiles()])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self, every_n_updates: int = 10) -> None:
        self.every_n_updates = every_n_updates
        self.probe: Probe | None = None
        self._step = 0
        self._vectors: list[Tensor] = []
        self._update: dict[str, Any] = {}
        self._weights: WeightChange | None = None
        self._published = Published()
        self._has_tokens = False
        self._has_reported = False
        self._time = 0.0
        self._clock = WindowClock()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start counting from here."""
        run_clock(trainer).start()
        self._step, self._vectors, self._time = trainer.global_step, [], time.monotonic()
        self._clock = WindowClock()
        self._weights = WeightChange(pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Before the first update of a module without ``score``, take the probe set from its batch."""
        self._clock.batch_starts()
        if trainer.global_step == 0 and batch_idx == 0 and offered(pl_module, "score", "tokens") is None:
            self.probe = trainer.strategy.broadcast(probe_from_batch(trainer, pl_module, batch))

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at the gradient before it is clipped, and at the weights before they change."""
        self._update = {"learning_rate": optimizer.param_groups[0]["lr"]}
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if gradients and not isinstance(trainer.strategy, FSDPStrategy):  # DeepSpeed and FSDP1 hide whole gradients
            norm = torch.nn.utils.get_total_norm(gradients)
            self._update["grad_norm"] = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self._weights is not None and self._is_due(trainer.global_step + 1):
            self._weights.remember()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add a micro-batch; after an update, reduce and publish."""
        self._clock.batches.stop()
        tokens = outputs.get("tokens", {}) if isinstance(outputs, dict) else {}
        self._has_tokens |= bool(tokens)
        self._take_probe(trainer, pl_module, tokens)
        self._vectors.append(pack(*token_metrics(tokens), pl_module.device))
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            measured = self._measure(trainer, pl_module) | self._clock.close_window(_metrics_of(outputs))
            self._publish(trainer, pl_module, outputs, measured)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to time an evaluation."""
        self._clock.evaluation_starts()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End it; the seconds stand in the next update's row."""
        self._clock.evaluations.stop()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the hours, shared by all callbacks that show them."""
        self._clock.checkpoint_starts()
        run_clock(trainer).save(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the saved hours."""
        run_clock(trainer).load(checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """Return the probe set with the start policy's log-probs."""
        return {"probe": self.probe}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the probe set back: the start policy itself is gone by now."""
        self.probe = state_dict["probe"]

    def _measure(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, float]:
        """Reduce the window over micro-batches and ranks, in one collective."""
        extra: Sums = {}
        if self._weights is not None and self._weights.remembers:
            extra |= self._weights.measure()
        if self.probe is not None and self._is_due(self._step):
            extra |= measure_drift(trainer, pl_module, self.probe)
        self._vectors.append(pack(extra, {}, pl_module.device))
        window = combine(torch.stack(self._vectors))
        window = combine(trainer.strategy.all_gather(window).view(-1, len(window)))
        self._vectors = []
        now = time.monotonic()
        seconds, self._time = now - self._time, now
        metrics = unpack(window)
        if num_scored(window) > 0:
            metrics["tokens_per_second"] = num_scored(window) / seconds
        metrics |= {name: float(value) for name, value in self._update.items()}
        metrics["hours"], metrics["device_hours"] = run_clock(trainer).read()
        return metrics

    def _publish(
        self, trainer: Trainer, pl_module: LightningModule, outputs: dict[str, Any], metrics: dict[str, float]
    ) -> None:
        added = self._published.add(trainer, pl_module, outputs, metrics, shown="tokens_per_second")
        if not self._has_reported:
            self._has_reported = True
            self._report_missing(added.keys() | self._published.theirs, _not_meant(pl_module))

    def _report_missing(self, names: set[str], not_meant: set[str]) -> None:
        unmeasured = {name: key for name, key in _NEEDS.items() if name not in names | not_meant}
        missing = [f"{name} (no {key} in tokens)" for name, key in unmeasured.items()]
        if unmeasured and not self._has_tokens:
            missing = [f"{', '.join(unmeasured)} (training_step returns no tokens)"]
        if "kl" in unmeasured:
            missing.append(
                "drift/forward_kl (no score(tokens), and no Hugging Face model with batches of input_ids)"
                if self.probe is None
                else "drift/forward_kl is measured instead of kl"
            )
        if missing:
            rank_zero_info(f"PolicyMonitor could not be checked: {'; '.join(missing)}. See callbacks/README.md.")

    def _take_probe(self, trainer: Trainer, pl_module: LightningModule, tokens: dict[str, Tensor]) -> None:
        """Keep rows of the first window with their log-probs, which were computed before its update."""
        if self._step > 0 or self.probe is not None or offered(pl_module, "score", "tokens") is None:
            return
        usable = {"input_ids", "logps"} <= set(tokens) and "ref_logps" not in tokens
        self.probe = trainer.strategy.broadcast(make_probe(tokens, tokens["logps"]) if usable else None)

    def _is_due(self, step: int) -> bool:
        return step == 1 or step % self.every_n_updates == 0


def _metrics_of(outputs: Any) -> dict[str, Any]:
    return outputs.get("metrics", {}) if isinstance(outputs, dict) else {}


def _not_meant(pl_module: LightningModule) -> set[str]:
    """Return metrics that a module's own account of itself says it cannot have, so that nobody misses them."""
    run_facts = offered(pl_module, "run_facts")
    facts = run_facts() if run_facts is not None else {}
    kl = {"kl"} if facts.get("reference") == "none" else set()
    return kl if facts.get("stage", "rl") == "rl" else kl | (set(_NEEDS) - {"kl"})
