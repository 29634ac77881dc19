"""Metric names of other trainers, and ours (`metric_table`) for them."""

import re

# exact names, without the prefix of a logger (train/, training/)
ALIASES = {
    # TRL, older and newer
    "completion_length": "completions/mean_length",
    "objective/kl": "kl",
    "objective/scores": "reward",
    "policy/entropy_avg": "entropy",
    "policy/clipfrac_avg": "clip_ratio/region_mean",
    "advantage_std": "advantages/std",
    "advantages_std": "advantages/std",
    "clip_ratio": "clip_ratio/region_mean",
    "loss/policy_avg": "policy_loss",
    "val/ratio": "ratio/mean",
    "lr": "learning_rate",
    # verl
    "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy",
    "actor/kl_loss": "kl",
    "actor/reward_kl_penalty": "kl",
    "actor/ppo_kl": "policy/approxkl_avg",
    "actor/pg_loss": "policy_loss",
    "actor/loss": "loss",
    "actor/pg_clipfrac": "clip_ratio/region_mean",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "critic/score/mean": "reward",
    "response_length/mean": "completions/mean_length",
    "response_length/min": "completions/min_length",
    "response_length/max": "completions/max_length",
    "response_length/clip_ratio": "completions/clipped_ratio",
    "timing_s/step": "step_time",
    "perf/time_per_step": "step_time",
    "perf/throughput": "tokens_per_second",
    "train/grad_norm": "grad_norm",
    # OpenRLHF
    "actor_lr": "learning_rate",
    "actor_grad_norm": "grad_norm",
    "response_length": "completions/mean_length",
    "group_reward_std": "reward_std",
    "ppo_clip_ratio": "clip_ratio/region_mean",
    "ppo_kl": "policy/approxkl_avg",
    "entropy_loss": "entropy",
    "chosen_reward": "rewards/chosen",
    "reject_reward": "rewards/rejected",
    "acc": "rewards/accuracies",
    "gpt_loss": "loss",
}
STEPS = ("step", "global_step", "_step", "Step", "train/global_step", "training/global_step", "trainer/global_step")
# TRL and others log these as 0 where they measure nothing: KL with beta 0, clipping with one update per rollout
PLACEHOLDERS = re.compile(r"kl|kl/k[123]|policy/approxkl_avg|clip_ratio/.*")
NO_METRICS = {"epoch", "total_flos", "_timestamp", "_runtime", "num_input_tokens_seen", *STEPS}
# of an RL run; elsewhere `eval/accuracy` is a reward model's
HELD_OUT_ACCURACY = ("eval/accuracy", "eval/acc", "eval/accuracy/mean", "eval/pass@1", "eval/exact_match")
_VERL_ACCURACY = re.compile(r"val(?:-core|-aux)?/.*/acc/mean@\d+")
_VERL_EVAL = re.compile(r"val(?:-core|-aux)?/.*(?:acc|reward|score|test_score).*")
_REWARD = re.compile(r"rewards/(?!chosen$|rejected$|accuracies$|margins$)[^/]+")
_UI_EXPORT = re.compile(r".+ - (?P<name>\S+)$")  # "name of the run - train/reward"


def canonical(name: str) -> str | None:
    """Return our name for a column of a foreign log, or None for what is no metric.

    Example:
        >>> [canonical(name) for name in ("train/completion_length", "actor/pg_clipfrac", "eval_rewards/margins")]
        ['completions/mean_length', 'clip_ratio/region_mean', 'eval/rewards/margins']
        >>> canonical("brave-sun-3 - train/kl"), canonical("brave-sun-3 - train/kl__MIN"), canonical("epoch")
        ('kl', None, None)
    """
    if name.endswith(("__MIN", "__MAX")):
        return None
    if export := _UI_EXPORT.match(name):
        name = export["name"]
    if name in NO_METRICS:
        return None
    if name in ALIASES:
        return ALIASES[name]
    if _VERL_ACCURACY.fullmatch(name):
        return "eval/pass_at_1"
    if _VERL_EVAL.fullmatch(name):
        return "eval/reward"
    for prefix in ("eval_", "eval/"):
        if name.startswith(prefix):
            inner = canonical(name[len(prefix) :])
            return f"eval/{inner}" if inner is not None else None
    for prefix in ("train/", "training/"):
        if name.startswith(prefix):
            return canonical(name[len(prefix) :])
    return f"{name}/mean" if _REWARD.fullmatch(name) else name
