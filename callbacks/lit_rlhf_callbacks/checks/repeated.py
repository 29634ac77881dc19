"""The checks that are made at several updates, and what they remember between them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lit_rlhf_callbacks.checks.direction import (
    Direction,
    check_advantages_follow_rewards,
    check_direction,
    update_direction,
)
from lit_rlhf_callbacks.checks.kl import check_kl_estimator
from lit_rlhf_callbacks.checks.look import Look
from lit_rlhf_callbacks.checks.reference import (
    HALF_TOLERANCE,
    TOLERANCE,
    check_reference_hash,
    check_reference_unmoved,
)
from lit_rlhf_callbacks.checks.result import unknown
from lit_rlhf_callbacks.checks.sampler import HALF_TOLERANCE as HALF_SAMPLER
from lit_rlhf_callbacks.checks.sampler import TOLERANCE as SAMPLER
from lit_rlhf_callbacks.checks.sampler import check_sampler, check_sampler_weights
from lit_rlhf_callbacks.checks.tokens import Tokens, affordable_rows, counted_mask
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NUM_LOOKS = 3
PROBE_TOKENS = 1024
_PROBE = ("input_ids", "attention_mask", "completion_mask", "labels", "ref_logps")


class Repeated:
    """Checks of what changes as a run goes on."""

    def __init__(self) -> None:
        self.probe: Tokens | None = None  # rows of the first window, with the reference's log-probs
        self.reference_hash: str | None = None
        self.sampler_distances: list[float] = []
        self.looks: list[Direction | None] = []

    def reference(self, look: Look) -> Iterator[CheckResult]:
        """Look whether it stays what it was."""
        now = look.facts.get("reference_hash")
        score = look.scorer("score_reference")
        if score is not None and look.has("ref_logps"):
            if self.probe is None:
                rows = affordable_rows(look.tokens, PROBE_TOKENS)
                self.probe = {name: rows[name].cpu() for name in _PROBE if name in rows}
            probe = {name: value.to(look.module.device) for name, value in self.probe.items()}
            mask, tolerance = counted_mask(probe), HALF_TOLERANCE if look.is_half else TOLERANCE
            rescored = score(probe)  # also where nothing counts: other ranks may need this one
            if mask is not None and mask.any():
                yield check_reference_unmoved(probe["ref_logps"], rescored, mask, tolerance=tolerance, step=look.step)
        elif isinstance(now, str):
            self.reference_hash = self.reference_hash or now
            yield check_reference_hash(self.reference_hash, now, step=look.step)
        elif look.has("ref_logps"):
            yield unknown("reference_unmoved", look.step, "no score_reference(tokens) and no reference_hash")

    def sampler(self, look: Look) -> Iterator[CheckResult]:
        """Look whether it has the learner's weights and temperature."""
        learner, sampler = look.facts.get("learner_hash"), look.facts.get("sampler_hash")
        if isinstance(learner, str) and isinstance(sampler, str):
            yield check_sampler_weights(learner, sampler, step=look.step)
        if not look.has("sampler_logps"):
            return
        first = look.tokens.get("old_logps", look.tokens.get("logps") if look.step == 1 else None)
        if first is None:
            yield unknown("sampler_agrees", look.step, "no old_logps: the learner has moved since it sampled")
            return
        result = check_sampler(
            first,
            look.tokens["sampler_logps"],
            look.mask,
            tolerance=HALF_SAMPLER if look.is_half else SAMPLER,
            earlier=self.sampler_distances,
            is_random=look.is_random,
            step=look.step,
        )
        if "mean_difference" in result.measured:
            self.sampler_distances = [*self.sampler_distances, result.measured["mean_difference"]][:NUM_LOOKS]
        yield result

    def direction(self, look: Look) -> Iterator[CheckResult]:
        """Look whether advantages follow rewards, and log-probs follow advantages."""
        if look.has("advantages", "rewards") and look.mask.any():
            advantages = look.tokens["advantages"]
            if advantages.dim() == 2:
                counts = look.mask.sum(-1).clamp(min=1)
                advantages = (advantages * look.mask).sum(-1) / counts
            yield check_advantages_follow_rewards(
                advantages, look.tokens["rewards"], look.tokens.get("prompt_ids"), step=look.step
            )
        is_later = len(self.looks) >= NUM_LOOKS
        if is_later and look.stage != "rl":
            return  # a loss with a target (IPO) or a second term may turn back once it is reached
        measured = self._measure_direction(look)
        if isinstance(measured, CheckResult):
            yield measured
            return
        self.looks = [*self.looks, measured][-NUM_LOOKS:]
        yield check_direction(
            self.looks,
            smallest=1e-2 if look.is_half else 1e-6,
            needed=3 if is_later else 2,
            has_pairs=look.has("chosen_mask"),
            step=look.step,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return plain data and tensors."""
        return {
            "probe": self.probe,
            "reference_hash": self.reference_hash,
            "sampler_distances": list(self.sampler_distances),
            "looks": [None if look is None else list(look) for look in self.looks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.probe, self.reference_hash = state["probe"], state["reference_hash"]
        self.sampler_distances = list(state["sampler_distances"])
        self.looks = [None if look is None else Direction(*look) for look in state["looks"]]

    def _measure_direction(self, look: Look) -> Direction | CheckResult | None:
        name = "update_direction"
        if look.stage == "reward_model":
            return self._measure_reward_model(look)
        score = look.scorer()
        if score is None or not look.has("logps") or not look.mask.any():
            return unknown(name, look.step, "no score(tokens), or no logps in tokens")
        rows = look.rows
        weights, clusters = _weights(look, rows)
        if weights is None:
            return unknown(name, look.step, "no advantages, chosen_mask or stage that say what should become likelier")
        mask = counted_mask(rows)
        assert mask is not None
        change = score(rows) - rows["logps"]
        per_token = look.facts.get("logps_over") == "mean"
        return update_direction(change, weights, mask, clusters=clusters, per_token=per_token)

    def _measure_reward_model(self, look: Look) -> Direction | CheckResult | None:
        score, rows = look.scorer("score_rewards"), look.rows
        if score is None or not look.has("rewards", "chosen_mask"):
            return unknown("update_direction", look.step, "no score_rewards(tokens), or no rewards and chosen_mask")
        weights, clusters = _signs(rows["chosen_mask"])
        change = (score(rows) - rows["rewards"])[:, None]
        return update_direction(change, weights, torch.ones_like(change, dtype=torch.bool), clusters=clusters)


def kl_checks(look: Look) -> Iterator[CheckResult]:
    """Look which estimator the logged KL is."""
    if look.stage == "rl" and "kl" in look.metrics and look.kl_sums is not None:
        yield check_kl_estimator(look.metrics["kl"], look.kl_sums, look.facts.get("estimator", "k3"), step=look.step)


def _weights(look: Look, rows: Tokens) -> tuple[Tensor | None, Tensor | None]:
    """Return what should become likelier, and which rows belong together."""
    if "advantages" in rows:
        prompt_ids = rows.get("prompt_ids")
        many = prompt_ids is not None and len(prompt_ids.unique()) >= 8
        return rows["advantages"], prompt_ids if many else None
    if "chosen_mask" in rows:
        return _signs(rows["chosen_mask"])
    return (torch.ones_like(rows["logps"]), None) if look.stage == "sft" else (None, None)


def _signs(chosen_mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return +1 for chosen and -1 for rejected rows; neighbours are a pair where they alternate.

    Else the signs are balanced, as one best of four is not, so that what moves all rows alike cancels there, too.
    """
    signs = 2.0 * chosen_mask.float() - 1.0
    alternate = len(signs) % 2 == 0 and bool((signs[0::2] == 1).all()) and bool((signs[1::2] == -1).all())
    if alternate:
        return signs, torch.arange(len(signs), device=signs.device) // 2
    return (signs - signs.mean() if len(signs.unique()) > 1 else signs), None
