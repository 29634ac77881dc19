"""The one table of metric names: what each means, in what unit, over which denominator, and what looks healthy.

Names are TRL's where TRL has one, because that is what dashboards have; ours follow the same style.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Metric(NamedTuple):
    """One metric, or a family of them: ``{reward}`` stands for any name without a slash."""

    name: str
    meaning: str
    unit: str
    denominator: str
    healthy: str


METRICS = (
    Metric("global_step", "optimiser updates so far", "updates", "none", "grows by 1 per row"),
    Metric("hours", "time spent training, summed over resumes", "h", "none", "compare runs at equal hours"),
    Metric("device_hours", "hours × number of ranks", "h", "none", "compare runs at equal cost"),
    # what is optimised
    Metric("loss", "the window's own loss", "loss", "window", "falls offline; near 0 and uninformative in RL"),
    Metric("policy_loss", "the policy-gradient part of the loss", "loss", "window", "near 0"),
    Metric("grad_norm", "gradient norm before clipping", "norm", "update", "steady; spikes precede trouble"),
    Metric("learning_rate", "learning rate of the first parameter group", "1", "update", "as scheduled"),
    Metric("update/share_changed", "weights an update changed", "share", "trained weights, a sample", "near 1"),
    Metric("update/relative_norm", "norm of the change over norm of the weights", "ratio", "same", "1e-6 to 1e-3"),
    # rewards
    Metric("reward", "weighted sum of the reward functions", "reward", "completions", "rises"),
    Metric("reward_std", "standard deviation of rewards in a group, unbiased", "reward", "groups", "above 0"),
    Metric("frac_reward_zero_std", "groups whose rewards are all equal", "share", "groups", "below 0.5"),
    Metric("rewards/chosen", "implicit reward of chosen answers", "reward", "pairs", "rises, or falls less"),
    Metric("rewards/rejected", "implicit reward of rejected answers", "reward", "pairs", "falls"),
    Metric("rewards/accuracies", "pairs with chosen above rejected", "share", "pairs", "0.5 to 0.9"),
    Metric("rewards/margins", "chosen minus rejected", "reward", "pairs", "rises slowly"),
    Metric("rewards/{reward}/mean", "one reward function, unweighted", "reward", "rows it applies to", "read each"),
    Metric("rewards/{reward}/std", "its standard deviation", "reward", "rows it applies to", "above 0"),
    Metric("rewards/num_dropped", "completions without a valid reward", "count", "window", "0"),
    Metric("rewards/length_correlation", "reward with length, within a prompt", "Pearson", "completions", "near 0"),
    Metric("advantages/mean", "mean of advantages", "reward or σ", "completions", "near 0 with a baseline"),
    Metric("advantages/std", "their standard deviation", "reward or σ", "completions", "steady, above 0"),
    Metric("advantages/frac_nonzero", "rows that push the policy at all", "share", "rows", "above 0.5"),
    # reward models
    Metric("reward_loss", "−log p of the labels, without margin and centring", "nats", "pairs", "ln 2 at first, falls"),
    Metric("accuracy", "pairs ranked right, or labels guessed; a tie is half", "share", "pairs", "above 0.5, rises"),
    Metric("margin", "mean score difference", "reward", "pairs", "rises"),
    Metric("min_reward", "lowest score", "reward", "window", "bounded"),
    Metric("mean_reward", "mean score", "reward", "rows", "near 0 with centring"),
    Metric("max_reward", "highest score", "reward", "window", "bounded"),
    # distance from the start
    Metric("kl", "KL from the reference, estimator k3", "nats/token", "completion tokens", "rises slowly, below 0.1"),
    Metric("kl/k1", "same, k1 = log π − log π_ref", "nats/token", "completion tokens", "near k3; noisy, any sign"),
    Metric("kl/k2", "same, k2 = k1² / 2", "nats/token", "completion tokens", "near k3 while small"),
    Metric("kl/k3", "same, k3 = exp(−k1) − 1 + k1", "nats/token", "completion tokens", "≥ 0"),
    Metric("drift/forward_kl", "start policy against current, fixed probe set", "nats/token", "probe tokens", "slow"),
    Metric("logps/chosen", "log-prob of chosen answers", "nats", "pairs", "does not collapse"),
    Metric("logps/rejected", "log-prob of rejected answers", "nats", "pairs", "falls"),
    Metric("logps/chosen_per_token", "same, per token", "nats/token", "chosen tokens", "rises, or falls slightly"),
    Metric("logps/rejected_per_token", "same, per token", "nats/token", "rejected tokens", "falls"),
    Metric("logps/mean", "log-prob of the tokens trained on", "nats/token", "completion tokens", "rises slowly"),
    Metric("entropy", "entropy of the next token", "nats/token", "completion tokens", "falls slowly, above 0.1"),
    Metric("mean_token_accuracy", "tokens the model would have chosen", "share", "supervised tokens", "rises"),
    # off-policyness
    Metric("ratio/mean", "π / π_old", "ratio", "completion tokens", "within 0.01 of 1"),
    Metric("ratio/max", "largest π / π_old", "ratio", "window", "below 10; exactly 1 in a phase's first update"),
    Metric("policy/approxkl_avg", "(log π − log π_old)² / 2", "nats/token", "completion tokens", "below 0.02"),
    Metric("clip_ratio/low_mean", "tokens clipped below", "share", "completion tokens", "below 0.2"),
    Metric("clip_ratio/low_min", "lowest such share of a rank", "share", "completion tokens", "below 0.2"),
    Metric("clip_ratio/high_mean", "tokens clipped above", "share", "completion tokens", "below 0.2"),
    Metric("clip_ratio/high_max", "highest such share of a rank", "share", "completion tokens", "below 0.3"),
    Metric("clip_ratio/region_mean", "tokens clipped either way", "share", "completion tokens", "below 0.3"),
    Metric("cispo_clip_ratio", "tokens whose weight was capped", "share", "completion tokens", "below 0.3"),
    Metric("sampling/sampling_logp_difference/mean", "|learner − sampler| log-prob", "nats", "tokens", "below 0.01"),
    Metric("sampling/sampling_logp_difference/max", "largest one", "nats", "window", "below 1"),
    Metric("sampling/importance_sampling_ratio/min", "smallest correction weight", "ratio", "window", "above 0.1"),
    Metric("sampling/importance_sampling_ratio/mean", "mean correction weight", "ratio", "tokens", "near 1"),
    Metric("sampling/importance_sampling_ratio/max", "largest correction weight", "ratio", "window", "at most the cap"),
    # what was generated
    Metric("completions/mean_length", "completion length", "tokens", "completions", "no joint rise with clipped_ratio"),
    Metric("completions/min_length", "shortest", "tokens", "window", "above 1"),
    Metric("completions/max_length", "longest", "tokens", "window", "below the limit"),
    Metric("completions/clipped_ratio", "completions cut by the limit", "share", "completions", "below 0.1"),
    Metric("completions/mean_terminated_length", "length of those that ended", "tokens", "those", "near the mean"),
    Metric("completions/min_terminated_length", "shortest of those", "tokens", "window", "above 1"),
    Metric("completions/max_terminated_length", "longest of those", "tokens", "window", "below the limit"),
    Metric("completions/empty_ratio", "at most one token: nothing but the stop", "share", "completions", "0"),
    Metric("completions/repetition", "4-grams that stood before in the same completion", "share", "4-grams", "steady"),
    Metric("dynamic_sampling/extra_prompts", "prompts drawn to replace useless ones", "count", "phase", "few"),
    Metric("dynamic_sampling/missing_prompts", "prompts still missing at the bound", "count", "phase", "0"),
    # evaluation
    Metric("eval/pass_at_1", "held-out prompts answered right at the first try", "share", "eval/n", "rises"),
    Metric("eval/pass_at_1_se", "its standard error", "share", "eval/n", "below the effect looked for"),
    Metric("eval/n", "samples in that mean", "count", "none", "≥ 256"),
    Metric("eval/stop_rate", "own greedy completions of held-out prompts that stop", "share", "prompts", "near 1"),
    Metric("eval/reward", "mean reward of held-out samples", "reward", "eval samples", "rises with pass@1"),
    Metric("eval/completions/mean_length", "length of held-out samples", "tokens", "eval samples", "near training's"),
    Metric("eval/completions/clipped_ratio", "held-out samples cut by the limit", "share", "eval samples", "below 0.1"),
    Metric("eval/calibration_error", "|probability − frequency| over ten bins", "share", "eval labels", "below 0.1"),
    Metric("eval/{name}", "any other held-out value", "as named", "eval samples", "near its training value"),
    # what a run must not lose
    Metric("sentinel/{set}/accuracy", "multiple-choice items answered right", "share", "the set's items", "steady"),
    Metric("sentinel/{set}/accuracy_se", "its binomial standard error", "share", "same", "below the drop looked for"),
    Metric("sentinel/{set}/margin", "right option over the best wrong one", "nats/token", "same", "steady, above 0"),
    Metric("sentinel/{set}/change", "accuracy minus that of the start", "share", "same", "near 0"),
    Metric("sentinel/{set}/sigma", "that, in standard errors of paired items (McNemar)", "σ", "same", "above −3"),
    # memory
    Metric("memory/predicted_gib", "what the run should hold at its fullest", "GiB", "rank 0", "below the device's"),
    Metric("memory/static_gib", "weights, gradients, optimiser: bytes of their tensors", "GiB", "rank 0", "constant"),
    Metric("memory/activations_gib", "kept for a backward, largest micro-batch", "GiB", "rank 0", "as predicted"),
    Metric("memory/peak_gib", "most there has been", "GiB", "rank 0", "near the prediction; rollouts come on top"),
    # cost
    Metric("num_tokens", "tokens processed", "tokens", "none", "grows"),
    Metric("tokens_per_second", "completion tokens trained on, all ranks", "1/s", "time between updates", "steady"),
    Metric("padding/waste", "padding among the tokens computed", "share", "padded tokens", "below 0.1"),
    Metric("padding/waste_before", "same, in the batches the loader made", "share", "padded tokens", "for comparison"),
    Metric("padding/tokens_per_second", "tokens trained on, without padding", "1/s", "time between updates", "steady"),
    Metric("padding/num_split", "micro-batches computed in parts", "count", "window, all ranks", "0"),
    Metric("step_time", "time of an update", "s", "update", "steady"),
    Metric(
        "time/update",
        "forward to optimiser step, callbacks included",
        "s",
        "update, first rank",
        "steady",
    ),
    Metric("time/evaluation", "evaluations since the update before", "s", "update, first rank", "a small part"),
    Metric("time/checkpoint", "checkpoints since the update before", "s", "update, first rank", "a small part"),
    Metric("time/{part}", "time spent in a part of the update", "s", "update, slowest rank", "rollout dominates in RL"),
)


def in_table_order(names: Iterable[str]) -> list[str]:
    """Sort metric names as the table lists them; those it doesn't know come last, by name.

    Example:
        >>> in_table_order(["my_metric", "reward", "rewards/length/mean", "global_step"])
        ['global_step', 'reward', 'rewards/length/mean', 'my_metric']
    """
    return sorted(names, key=lambda name: (_place(name), name))


def describe(name: str) -> Metric | None:
    """Look a metric up by its name, or by its family's.

    Example:
        >>> describe("rewards/exact_match/mean").meaning
        'one reward function, unweighted'
        >>> describe("eval/rewards/accuracies").meaning
        'held-out: pairs with chosen above rejected'
    """
    place = _place(name)
    metric = METRICS[place] if place < len(METRICS) else None
    if metric is None or metric.name != _ANY_HELD_OUT:
        return metric
    in_training = describe(name.removeprefix("eval/"))
    return metric if in_training is None else in_training._replace(meaning=f"held-out: {in_training.meaning}")


def as_markdown() -> str:
    """Render the table for the documentation."""
    rows = [Metric("name", "meaning", "unit", "denominator", "healthy"), Metric(*["---"] * 5)]
    rows += [metric._replace(name=f"`{metric.name}`") for metric in METRICS]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def _pattern(family: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(re.escape(part) for part in re.split(r"\{\w+\}", family)))


_ANY_HELD_OUT = "eval/{name}"
_EXACT = {metric.name: place for place, metric in enumerate(METRICS)}
_FAMILIES = [(_pattern(metric.name), place) for place, metric in enumerate(METRICS) if "{" in metric.name]


def _place(name: str) -> int:
    if name in _EXACT:
        return _EXACT[name]
    family = next((place for pattern, place in _FAMILIES if pattern.fullmatch(name)), len(METRICS))
    return _EXACT[_ANY_HELD_OUT] if family == len(METRICS) and name.startswith("eval/") else family
