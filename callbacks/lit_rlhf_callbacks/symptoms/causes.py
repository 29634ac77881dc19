"""Causes that explain several kinds of failure, written once so that they read the same everywhere.

A family takes one with ``likely(LEARNING_RATE_TOO_HIGH, 5, …)``: the weight, and further signs, are the kind's own.
"""

from dataclasses import replace

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Sign
from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.readings import (
    above,
    below,
    change,
    check_failed,
    fact_above,
    fact_below,
    fact_is,
    level_of,
    rose,
    start_of,
)

LEARNING_RATE = "model.optimizer.init_args.lr"


def likely(cause: Cause, prior: float, *signs: Sign) -> Cause:
    """Return a shared cause with a kind's own prior weight and further signs."""
    return replace(cause, prior=prior, signs=(*cause.signs, *signs))


LEARNING_RATE_TOO_HIGH = Cause(
    "learning_rate_too_high",
    "the learning rate is too high",
    1.0,
    f"run again from the last good checkpoint with {LEARNING_RATE} a third: the symptom stays away if this is it",
    (
        Sign("an update moves the weights by more than 3 % of their norm", above("update/relative_norm", 0.03), 3.0),
        Sign("gradient norms have grown to three times those of the start", rose("grad_norm", times=3.0), 2.0),
        Sign("the learning rate is above 1e-3", fact_above("optimizer.lr", 1e-3), 3.0),
        Sign("the learning rate is below 1e-6", fact_below("optimizer.lr", 1e-6), 0.3),
    ),
    change(LEARNING_RATE, "optimizer.lr", lambda old: old / 3),
)

LEARNING_RATE_TOO_LOW = Cause(
    "learning_rate_too_low",
    "the learning rate is too low",
    1.0,
    f"look at update/relative_norm, then run 20 updates with {LEARNING_RATE} ten times as high: it moves if this is it",
    (
        Sign("an update moves the weights by less than 1e-6 of their norm", below("update/relative_norm", 1e-6), 4.0),
        Sign("the learning rate is below 1e-7", fact_below("optimizer.lr", 1e-7), 4.0),
        Sign("the learning rate is above 1e-4", fact_above("optimizer.lr", 1e-4), 0.3),
    ),
    change(LEARNING_RATE, "optimizer.lr", lambda old: old * 10),
)

BF16_WEIGHTS = Cause(
    "bf16_weights",
    "the weights are kept in bf16, whose steps are coarser than the updates",
    1.0,
    "look at update/share_changed: far below 1 if this is it; keep weights in fp32 (trainer.precision: bf16-mixed)",
    (
        Sign("weights are bf16", fact_is("weights.dtype", "torch.bfloat16", "bfloat16"), 10.0, 0.02),
        Sign("an update changes less than half of the weights", below("update/share_changed", 0.5), 5.0, 0.3),
    ),
    lambda view: "trainer.precision: bf16-true → bf16-mixed" if view.facts.get("trainer.precision") else None,
)

HALF_PRECISION_OVERFLOW = Cause(
    "half_precision_overflow",
    "numbers leave the range of fp16",
    1.0,
    "run 20 updates with trainer.precision: 32-true (or bf16-mixed): finite if this is it",
    (Sign("precision is fp16", fact_is("trainer.precision", "16-mixed", "16-true", "16"), 8.0, 0.05),),
    lambda view: (
        f"trainer.precision: {view.facts['trainer.precision']} → bf16-mixed"
        if "trainer.precision" in view.facts
        else None
    ),
)

NOTHING_TRAINABLE = Cause(
    "nothing_trainable",
    "no weight is trained",
    1.0,
    "look at weights.num_trainable in checks.jsonl and at update/share_changed: 0 if this is it",
    (
        Sign("no weight has requires_grad", fact_below("weights.num_trainable", 1), 50.0, 0.02),
        Sign("an update changed no weight", below("update/share_changed", 1e-9), 10.0, 0.1),
    ),
)

ALL_MASKED = Cause(
    "all_masked",
    "no token counts in the loss",
    1.0,
    "python -m lit_rlhf inspect --config CONFIG: the first sequence shows which tokens count",
    (Sign("the check of supervised tokens failed", check_failed("supervised_tokens"), 20.0, 0.05),),
)

BAD_DATA = Cause(
    "bad_data",
    "some of the data is broken: empty, mislabelled, or of another format",
    1.0,
    "python -m lit_rlhf inspect --config CONFIG, then look at the samples of the update where it began",
)

BAD_REWARD = Cause(
    "bad_reward",
    "a reward function returned NaN, infinity or a huge number",
    1.0,
    "look at rewards/{name}/mean of each function at the onset, and at rewards/num_dropped",
    (
        Sign("completions were dropped for want of a valid reward", above("rewards/num_dropped", 0.5), 4.0),
        Sign("reward itself was NaN or infinite", lambda view: _has_bad_values(view, "reward"), 10.0, 0.5),
    ),
)

ZERO_CONTRAST = Cause(
    "zero_contrast",
    "most groups have equal rewards, so they teach nothing",
    1.0,
    "look at frac_reward_zero_std: near 1 if this is it",
    (Sign("more than half of the groups have equal rewards", above("frac_reward_zero_std", 0.5), 5.0, 0.1),),
)

DEAD_REWARD = Cause(
    "dead_reward",
    "the reward never varies, whatever is written",
    1.0,
    "call the reward function on a right and on a wrong answer: equal if this is it",
    (
        Sign("all rewards of the last rows are the same", lambda view: _is_constant(view, "reward"), 8.0, 0.05),
        Sign("the check of the reward function failed", check_failed("reward_function"), 20.0, 0.3),
    ),
)

ENTROPY_COLLAPSE = Cause(
    "entropy_collapse",
    "the policy has become certain, so all samples of a prompt are alike",
    1.0,
    "look at entropy, and at three samples of one prompt: the same text if this is it",
    (Sign("entropy is below a tenth of the start's", lambda view: _is_tenth(view, "entropy"), 5.0, 0.2),),
)

NO_KL = Cause(
    "no_kl",
    "nothing holds the policy to its start (beta is 0)",
    1.0,
    "run again from the last good checkpoint with model.beta 0.04: the symptom comes later or not at all",
    (Sign("beta is 0", fact_is("beta", 0, 0.0), 3.0, 0.1),),
    lambda view: "model.beta: 0 → 0.04" if view.facts.get("beta") == 0 else None,
)

BETA_TOO_LOW = Cause(
    "beta_too_low",
    "beta is too low to hold the policy to its reference",
    1.0,
    "run again from the last good checkpoint with three times the beta: kl stays lower if this is it",
    (Sign("beta is below 0.01", fact_below("beta", 0.01), 2.0, 0.7),),
    lambda view: (
        f"model.beta: {view.facts['beta']:g} → {view.facts['beta'] * 3:.3g}" if view.facts.get("beta") else None
    ),
)

REFERENCE_NOT_START = Cause(
    "reference_not_start",
    "the reference is not the policy this run started from",
    1.0,
    "look at kl of the first update, and at reference_is_start in checks.jsonl: 0 and ok if all is well",
    (Sign("KL was not 0 before the first update", lambda view: _starts_above(view, "kl", 1e-3), 6.0, 0.05),),
)

REWARD_SCALE = Cause(
    "reward_scale",
    "rewards are so large that the pull of the reward outweighs everything else",
    1.0,
    "look at reward and reward_std: divide by their spread if they are far above 1",
    (
        Sign("rewards of a group differ by more than 10", above("reward_std", 10.0), 4.0, 0.3),
        Sign("advantages are divided by their spread", fact_is("model.advantage_scale", "group", "batch"), 0.2),
    ),
)

LABELS_SWAPPED = Cause(
    "labels_swapped",
    "chosen and rejected are the wrong way round",
    1.0,
    "python -m lit_rlhf inspect --config CONFIG: read ten pairs; swap the columns if the rejected ones are better",
)

LABELS_NOISY = Cause(
    "labels_noisy",
    "too many labels are wrong or arbitrary",
    1.0,
    "label fifty pairs by hand and count agreement",
)

DROPOUT_ON = Cause(
    "dropout_on",
    "dropout makes two passes over the same tokens differ",
    1.0,
    "look at ratio/max of the first update: exactly 1 without dropout",
    (Sign("dropout is on", fact_is("model.dropout", True), 10.0, 0.05),),
    lambda view: "model.dropout: true → false" if view.facts.get("model.dropout") is True else None,
)

STALE_SAMPLER_WEIGHTS = Cause(
    "stale_sampler_weights",
    "samples come from older weights than those that are trained",
    1.0,
    "compare weight hashes of sampler and policy, and sampling/sampling_logp_difference/mean: above 0.01 if this is it",
    (
        Sign(
            "sampler and learner disagree on the tokens' log-probs",
            above("sampling/sampling_logp_difference/mean", 0.02),
            6.0,
            0.3,
        ),
    ),
)

SAMPLING_TRUNCATED = Cause(
    "sampling_truncated",
    "sampling leaves out the tail (top_p or top_k), so what is trained on is surer than the policy",
    1.0,
    "run with model.sampling.top_p 1.0 and top_k 0: entropy falls more slowly if this is it",
    (
        Sign("top_p is below 1", fact_below("model.sampling.top_p", 1.0), 4.0, 0.5),
        Sign("top_k is set", fact_above("model.sampling.top_k", 0), 4.0, 0.5),
    ),
)

TASK_TOO_HARD = Cause(
    "task_too_hard",
    "the task is too hard: hardly any sample is right",
    1.0,
    "python -m lit_rlhf best-of-n on the scored samples: pass@16 near 0 if this is it",
)


def _has_bad_values(view: RunView, metric: str) -> bool | None:
    return view.history.series[metric].num_bad > 0 if metric in view.history.series else None


def _is_constant(view: RunView, metric: str) -> bool | None:
    if not view.history.has(metric, num_rows=3):
        return None
    values = view.history[metric].recent_values(10)
    return max(values) - min(values) <= 1e-9 * max(1.0, abs(values[0]))


def _is_tenth(view: RunView, metric: str) -> bool | None:
    start, now = start_of(view, metric), level_of(view, metric, 5)
    return None if start is None or now is None else now < 0.1 * start


def _starts_above(view: RunView, metric: str, bound: float) -> bool | None:
    return view.history[metric].start[0] > bound if view.history.has(metric) else None
