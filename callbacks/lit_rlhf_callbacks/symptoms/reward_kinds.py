"""Kinds and causes of rewards that rise while answers do not, or change by themselves; `rewards` has the rules."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    ENTROPY_COLLAPSE,
    LEARNING_RATE_TOO_HIGH,
    NO_KL,
    REWARD_SCALE,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.policy_kinds import REWARD_NOISE, ROOTS, is_learned_reward, reward_names
from lit_rlhf_callbacks.symptoms.readings import above, check_failed, rose

AUXILIARY = ("format", "length", "overlong", "brevity", "style", "xml", "json", "repetition")


def is_auxiliary(name: str) -> bool:
    """Tell by its name whether a reward function looks at form only."""
    return any(part in name.lower() for part in AUXILIARY)


def _has_auxiliary(view: RunView) -> bool | None:
    names = reward_names(view)
    return any(is_auxiliary(name) for name in names) if names else None


_REWARD_MODEL_EXPLOITED = Cause(
    "reward_model_exploited",
    "the policy has found what the reward model overrates",
    3.0,
    "read the best rewarded completions of samples.jsonl, then python -m lit_rlhf best-of-n on them with the truth: "
    "accuracy that falls with n shows it",
    (
        Sign("a reward comes from a model", is_learned_reward, 5.0, 0.15),
        Sign("completions repeat themselves more than at the start", rose("completions/repetition", by=0.1), 1.5),
    ),
)
_VERIFIER_FAULTY = Cause(
    "verifier_faulty",
    "the reward function accepts wrong answers",
    2.0,
    "score known wrong answers, an empty one and the ten best rewarded completions by hand",
    (
        Sign("the check of the reward function failed", check_failed("reward_function"), 20.0, 0.6),
        Sign("no reward comes from a model", lambda view: _negated(is_learned_reward(view)), 2.0, 0.6),
    ),
)
LENGTH_BIAS = Cause(
    "length_bias",
    "the reward follows length rather than content",
    1.5,
    "look at rewards/length_correlation: far from 0 if this is it; compare answers of equal length",
    (
        Sign("within a prompt, longer answers get more reward", above("rewards/length_correlation", 0.3), 4.0, 0.3),
        Sign("answers are 1.4 times as long as at the start", rose("completions/mean_length", times=1.4), 2.0, 0.5),
        Sign("the check of the reward model by length alone failed", check_failed("reward_model_length"), 10.0),
    ),
)
_WEIGHTS_UNBALANCED = Cause(
    "weights_unbalanced",
    "one reward function weighs so much that the others do not count",
    2.0,
    "multiply each rewards/{name}/mean by its weight: one explains the whole rise if this is it",
)
_FORMAT_GAMING = Cause(
    "format_gaming",
    "form is rewarded by itself, so form is all that is learned",
    2.0,
    "give the form's reward only where the answer is right, and see whether right answers rise",
    (Sign("a reward function looks at form only", _has_auxiliary, 3.0, 0.4),),
)
_MIXED_REWARDS = Cause(
    "mixed_rewards",
    "rewards come from two regimes: another data slice, a clipped or failed grader, a bimodal reward model",
    1.0,
    "draw a histogram of the rewards before and after the onset: two humps if this is it",
    (Sign("completions were dropped for want of a reward", above("rewards/num_dropped", 0.5), 2.0),),
)
_NO_EVALUATION = Cause(
    "no_evaluation",
    "no held-out evaluation is logged, so nobody knows what the change means",
    1.0,
    "evaluate held-out prompts with an independent check (data.num_eval, trainer.val_check_interval)",
)
_ADVANTAGE_SIGN = Cause(
    "advantage_sign",
    "the update lowers what is rewarded",
    2.0,
    "look at the check of the update's direction: mean of advantage × change of log-prob below 0 if this is it",
    (Sign("the check of the update's direction failed", check_failed("update_direction"), 30.0, 0.05),),
)

KINDS = (
    Kind(
        "reward_hacking",
        "B",
        "The reward rises and answers do not get better",
        (_REWARD_MODEL_EXPLOITED, _VERIFIER_FAULTY, LENGTH_BIAS, likely(NO_KL, 0.7)),
        explained_by=("reward_function_broken", "length_hacking", "unleashed_reward"),
    ),
    Kind(
        "reward_falls",
        "§8",
        "The reward gets worse",
        (likely(LEARNING_RATE_TOO_HIGH, 4), REWARD_NOISE, _ADVANTAGE_SIGN, likely(ENTROPY_COLLAPSE, 1)),
        explained_by=(
            *ROOTS,
            "all_truncated",
            "truncation",
            "empty_completions",
            "repetition",
            "entropy_explosion",
            "entropy_collapse",
            "kl_explosion",
            "sampler_mismatch",
        ),
    ),
    Kind(
        "reward_variance_jump",
        "B",
        "Rewards scatter more than they did",
        (likely(REWARD_SCALE, 2), _MIXED_REWARDS, REWARD_NOISE),
        explained_by=("truncation", "entropy_explosion", "kl_explosion"),
    ),
    Kind(
        "reward_term_dominates",
        "B",
        "One part of the reward rises at the cost of another",
        (_WEIGHTS_UNBALANCED, _FORMAT_GAMING, likely(LENGTH_BIAS, 0.7)),
        explained_by=("reward_function_broken", "zero_contrast"),
    ),
    Kind("reward_drift", "§5", "The reward has moved, and nothing says whether answers did", (_NO_EVALUATION,)),
)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value
