"""Whether an update made likelier what it was meant to: no metric shows a loss whose sign is wrong."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NOISE = 2.0  # standard errors; a verdict takes two such looks
MATERIAL = 0.3  # of all the movement there was
HUGE = 1.0  # nats per token in one update: no first-order argument holds any more


class Direction(NamedTuple):
    """How an update moved what it was meant to move."""

    gain: float
    """Mean of weight × change, over rows or clusters of them."""
    noise: float
    """Its standard error."""
    alignment: float
    """Sum of weight × change over the sum of its sizes: 1 all as meant, -1 all against it."""
    movement: float
    """Mean absolute change, per token or score."""

    @property
    def is_backwards(self) -> bool:
        """Whether it went against what was meant, beyond noise."""
        return self.gain < -NOISE * self.noise and self.alignment < -MATERIAL


def update_direction(
    change: Tensor, weights: Tensor, mask: Tensor, *, clusters: Tensor | None = None, per_token: bool = False
) -> Direction | None:
    """Measure an update on the tokens it was made from.

    Args:
        change: ``[B, T]`` log-prob after the update minus before; or ``[B, 1]`` scores of a reward model.
        weights: ``[B, T]`` or ``[B]``: the advantages; 1 for what is to be imitated; of pairs, +1 for the chosen and
            -1 for the rejected row.
        mask: ``[B, T]`` bool.
        clusters: ``[B]``, which rows belong together (a pair, a prompt's completions): what moves all of them alike
            cancels, and the noise is that between clusters.
        per_token: Compare rows by their means, where the loss does.

    Returns:
        None where nothing was meant to move.
    """
    weights = (weights if weights.dim() == 2 else weights[:, None]).expand(change.shape).float()
    terms = (weights * change.float()).masked_fill(~mask, 0.0).sum(-1)  # [B]
    counts = mask.sum(-1)
    if per_token:
        terms = terms / counts.clamp(min=1)
    pushed = (weights.ne(0) & mask).any(-1)
    terms = terms[pushed].double()
    if not len(terms):
        return None
    if clusters is not None:
        numbers = torch.unique(clusters[pushed], return_inverse=True)[1]
        sums = torch.zeros(int(numbers.max()) + 1, dtype=terms.dtype, device=terms.device)
        terms = sums.index_add(0, numbers, terms)
    size = float(terms.abs().sum())
    return Direction(
        gain=float(terms.mean()),
        noise=float(terms.std() / len(terms) ** 0.5) if len(terms) > 1 else float("inf"),
        alignment=float(terms.sum()) / size if size else 0.0,
        movement=float(change[mask].abs().float().mean()),
    )


def check_direction(
    looks: Sequence[Direction | None], *, smallest: float, needed: int = 2, has_pairs: bool = False, step: int = 0
) -> CheckResult:
    """Judge the updates looked at so far: backwards beyond noise in at least `needed` of them fails.

    Args:
        looks: One per update looked at, in order; None where nothing was meant to move.
        smallest: A mean absolute change below which rounding may be all there is.
        needed: How many must be backwards.
        has_pairs: The weights are those of chosen and rejected rows, not advantages.
        step: Updates made.
    """
    name = "update_direction"
    seen = [look for look in looks if look is not None and look.movement > smallest]
    if not seen:
        why = "the updates moved nothing" if any(looks) else "nothing was meant to move (all weights zero)"
        return unknown(name, step, why)
    backwards = [look for look in seen if look.is_backwards]
    last = seen[-1]
    numbers = {**last._asdict(), "looks": len(seen), "backwards": len(backwards)}
    if len(backwards) < needed:
        text = f"weight × change is {last.gain:+.2e} ± {last.noise:.0e}, alignment {last.alignment:+.2f}"
        return passed(name, step, text, numbers)
    too_far = max(look.movement for look in backwards) > HUGE
    what, meant = ("chosen rows", "labels") if has_pairs else ("log-probs", "advantages")
    text = (
        f"in {len(backwards)} of {len(seen)} updates {what} moved against the {meant}: mean of weight × "
        f"change {last.gain:+.2e} ± {last.noise:.0e} where it must be positive"
    )
    sign = "pairs_swapped" if has_pairs else "advantage_sign"
    return failed(name, step, "sign_flipped", "learning_rate_too_high" if too_far else sign, text, numbers)


def check_advantages_follow_rewards(
    advantages: Tensor, rewards: Tensor, prompt_ids: Tensor | None = None, *, step: int = 0
) -> CheckResult:
    """Check that among a prompt's completions the better rewarded has the larger advantage.

    Where every prompt has one completion, all rows are compared: with any baseline that is not the reward itself, the
    better rewarded have the larger advantages on the whole.

    Args:
        advantages: ``[B]`` or ``[B, T]`` (the first counted token's stands for the row: pass one column).
        rewards: ``[B]``.
        prompt_ids: ``[B]``; None compares over all rows.
        step: Updates made.
    """
    name = "advantages_follow_rewards"
    groups = torch.unique(prompt_ids, return_inverse=True)[1] if prompt_ids is not None else torch.zeros_like(rewards)
    groups = groups.long()
    where = "within prompts"
    if len(groups.unique()) == len(groups) > 1:
        groups, where = torch.zeros_like(groups), "over all rows"
    counts = torch.bincount(groups).clamp(min=1).double()

    def centred(values: Tensor) -> Tensor:
        values = values.double()
        return values - (torch.bincount(groups, weights=values) / counts)[groups]

    left, right = centred(advantages), centred(rewards)
    scale = float(left.norm() * right.norm())
    if scale < 1e-12 or int((right.abs() > 1e-9).sum()) < 4:
        return unknown(name, step, f"rewards are alike {where}")
    correlation = float((left * right).sum()) / scale
    if correlation < -0.5:
        text = f"{where} advantages fall where rewards rise (correlation {correlation:+.2f})"
        return failed(name, step, "sign_flipped", "advantage_sign", text, {"correlation": correlation})
    return passed(
        name,
        step,
        f"correlation of advantages and rewards {correlation:+.2f} {where}",
        {"correlation": correlation},
    )
