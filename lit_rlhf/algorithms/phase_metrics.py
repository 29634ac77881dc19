"""What a rollout says before any update: rewards, group contrast and lengths, of everything that was sampled."""

from collections.abc import Sequence

import torch

from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.functional.advantages import group_stats
from lit_rlhf.rollout.scored import ScoredRollout


def add_phase_metrics(meter: WindowMeter, scored: ScoredRollout, names: Sequence[str], group_size: int) -> None:
    """Add a rollout's metrics, under TRL's keys.

    Args:
        meter: Takes them; every rank must call this.
        scored: All completions sampled for the phase's own prompts.
        names: The reward functions' names, in the order of ``scored.scores``.
        group_size: Completions per prompt; group metrics need at least two.
    """
    valid = scored.keep(scored.valid_mask)
    meter.add_mean("reward", valid.rewards.sum(), len(valid))
    if group_size > 1:
        _, std, size = group_stats(valid.rewards, valid.prompt_ids)
        weight = 1.0 / size  # every group counts once
        meter.add_mean("reward_std", (std * weight).sum(), weight.sum())
        meter.add_mean("frac_reward_zero_std", ((std == 0) * weight).sum(), weight.sum())
    for column, name in enumerate(names):
        scores = scored.scores[:, column]
        meter.add_masked(f"rewards/{name}/mean", scores, ~scores.isnan())
    lengths, truncated = scored.lengths.double(), scored.truncated_mask
    meter.add_mean("completions/mean_length", lengths.sum(), len(scored))
    meter.add_max("completions/max_length", lengths)
    meter.add_masked("completions/mean_terminated_length", lengths, ~truncated)
    meter.add_mean("completions/clipped_ratio", truncated.sum(), len(scored))
    meter.add_total("num_tokens", torch.tensor([len(c.prompt_ids) for c in scored.completions]).sum() + lengths.sum())
    meter.add_total("rewards/num_dropped", (~scored.valid_mask).sum())
