"""How far the policy has moved from where it started, for runs that keep no reference."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lit_rlhf_callbacks.foreign_models import find_language_model, score_rows
from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.policy_metrics import Sums
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.scoring import kl_estimate, scored_mask

MAX_ROWS = 16
MAX_FOREIGN_TOKENS = 512  # per row, where whole logits are held
_INPUTS = ("input_ids", "attention_mask", "completion_mask", "labels")

Probe = dict[str, Tensor]


def make_probe(tokens: dict[str, Any], start_logps: Tensor) -> Probe:
    """Keep a few rows and what the start policy said about them.

    Args:
        tokens: What ``score`` needs: ``input_ids``, masks, ``labels``, each ``[B, T]``.
        start_logps: ``[B, T]``, computed before the first update.
    """
    probe = {name: tokens[name][:MAX_ROWS].detach().cpu() for name in _INPUTS if name in tokens}
    return probe | {"start_logps": start_logps[:MAX_ROWS].detach().float().cpu()}


def probe_from_batch(trainer: Trainer, pl_module: LightningModule, batch: Any) -> Probe | None:
    """Make a probe from the first batch of a project with a Hugging Face model and batches of ``input_ids``."""
    model = find_language_model(pl_module)
    if model is None or not isinstance(batch, dict) or not isinstance(batch.get("input_ids"), Tensor):
        return None
    names = [name for name in _INPUTS if isinstance(batch.get(name), Tensor)]
    cut = {name: batch[name][:MAX_ROWS, :MAX_FOREIGN_TOKENS] for name in names}
    cut.setdefault("attention_mask", torch.ones_like(cut["input_ids"]))
    with observing(trainer, pl_module):
        return make_probe(cut, score_rows(model, cut["input_ids"], cut["attention_mask"]))


def measure_drift(trainer: Trainer, pl_module: LightningModule, probe: Probe) -> Sums:
    """Estimate KL(start policy || current policy) per token, on the probe's tokens.

    It is a KL divergence as far as the start policy made these tokens; on other text it is a mean log-ratio, and a
    distance from the start either way (k3 is never negative).

    Returns:
        Sum and count, as `token_metrics` gives them.
    """
    on_device = {name: tensor.to(pl_module.device) for name, tensor in probe.items()}
    with observing(trainer, pl_module):
        current = _scorer(pl_module)(on_device)
    mask = scored_mask(on_device)
    mask = (mask if mask is not None else on_device["attention_mask"].bool()).clone()
    mask[:, 0] = False
    estimate = kl_estimate(on_device["start_logps"][mask], current[mask], "k3")
    return {"drift/forward_kl": (estimate.sum(), mask.sum())}


def _scorer(pl_module: LightningModule) -> Callable[[dict[str, Tensor]], Tensor]:
    method = offered(pl_module, "score", "tokens")
    if method is not None:
        return method
    model = find_language_model(pl_module)
    return lambda tokens: score_rows(model, tokens["input_ids"], tokens["attention_mask"])
