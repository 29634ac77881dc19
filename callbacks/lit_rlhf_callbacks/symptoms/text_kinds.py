"""The kinds and causes of completions that are cut, empty, endless or repeat themselves; `text` has the rules."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import ENTROPY_COLLAPSE, LEARNING_RATE_TOO_HIGH, likely
from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.policy_kinds import SHORT_ANSWER_REWARD, is_learned_reward
from lit_rlhf_callbacks.symptoms.readings import (
    above,
    below,
    change,
    check_failed,
    fact_is,
    fell,
    number,
    rose,
    start_of,
)

MAX_NEW_TOKENS = "model.sampling.max_new_tokens"


def _starts_cut(view: RunView) -> bool | None:
    start = start_of(view, "completions/clipped_ratio")
    return None if start is None else start > 0.5


def _eval_ends(view: RunView) -> bool | None:
    """Tell whether held-out completions end where they may be longer."""
    train, held_out = number(view, MAX_NEW_TOKENS), number(view, "model.eval_sampling.max_new_tokens")
    if train is None or held_out is None or held_out <= train or not view.history.has("eval/completions/clipped_ratio"):
        return None
    return view.history["eval/completions/clipped_ratio"].last < 0.2


def _nearly_fits(view: RunView) -> bool | None:
    """Tell whether completions that end are nearly as long as the limit."""
    limit = number(view, MAX_NEW_TOKENS) or _longest(view)
    if not limit or not view.history.has("completions/mean_terminated_length"):
        return None
    return view.history["completions/mean_terminated_length"].recent_median(5) > 0.6 * limit


def _longest(view: RunView) -> float | None:
    return view.history["completions/max_length"].last if view.history.has("completions/max_length") else None


MAX_NEW_TOKENS_TOO_SMALL = Cause(
    "max_new_tokens_too_small",
    "the token limit is too small for the answers",
    3.0,
    "sample twenty prompts with twice the limit: they end if this is it",
    (
        Sign("completions that end are nearly as long as the limit", _nearly_fits, 3.0, 0.5),
        Sign("held-out completions end under a larger limit", _eval_ends, 8.0, 0.3),
        Sign("many were cut from the start", _starts_cut, 1.5, 0.6),
        Sign("what is written repeats itself", above("completions/repetition", 0.5, 5), 0.3),
    ),
    change(MAX_NEW_TOKENS, MAX_NEW_TOKENS, lambda old: 2 * old),
)
LENGTH_HACKING = Cause(
    "length_hacking",
    "the reward draws answers out until they are cut",
    1.5,
    "look at completions/mean_length, rewards/length_correlation and clipped_ratio on one plot: they rise together",
    (
        Sign("answers are 1.4 times as long as at the start", rose("completions/mean_length", times=1.4), 3.0, 0.2),
        Sign("within a prompt, longer answers get more reward", above("rewards/length_correlation", 0.2), 3.0, 0.5),
        Sign("few were cut at the start", lambda view: _negated(_starts_cut(view)), 1.5, 0.3),
    ),
)
STOP_TOKEN_UNTRAINED = Cause(
    "stop_token_untrained",
    "the start policy has never learned to stop",
    1.5,
    "look at the end of ten completions: they go on after the answer; train the stop token in SFT",
    (
        Sign("the check of the stop token failed", check_failed("stop_token"), 20.0, 0.6),
        Sign("many were cut from the start", _starts_cut, 3.0, 0.1),
        Sign("what is written repeats itself", above("completions/repetition", 0.5, 5), 2.0),
        Sign("held-out completions end under a larger limit", _eval_ends, 0.05),
    ),
)
_STOP_ID_MISSING = Cause(
    "stop_id_not_in_generation_config",
    "the token that ends answers is not among those that end generation",
    1.5,
    "compare stop_ids in run.json with the last token of a training row; add it to generation_config.eos_token_id",
    (
        Sign("the check of the stop token failed", check_failed("stop_token"), 5.0, 0.6),
        Sign("no completion ends", above("completions/clipped_ratio", 0.995, 3), 3.0, 0.4),
        Sign("held-out completions end under a larger limit", _eval_ends, 0.02),
    ),
)
_REWARD_FAVOURS_LENGTH = Cause(
    "reward_favours_length",
    "the reward grows with length",
    3.0,
    "look at rewards/length_correlation: above 0.2 if this is it; score a short and a padded right answer",
    (
        Sign("within a prompt, longer answers get more reward", above("rewards/length_correlation", 0.2), 5.0, 0.2),
        Sign("a reward comes from a model", is_learned_reward, 1.5),
    ),
)
_LENGTH_NORMALISATION = Cause(
    "length_normalisation",
    "dividing each answer's loss by its own length punishes long wrong answers too little (GRPO)",
    1.5,
    "run again as DrGRPO, or with model.aggregation token_mean: length stays if this is it",
    (
        Sign(
            "losses are means over each answer's tokens", fact_is("model.aggregation", "seq_mean_token_mean"), 3.0, 0.1
        ),
        Sign(
            "within a prompt, longer answers get less reward or the same",
            below("rewards/length_correlation", 0.1),
            2.0,
            0.6,
        ),
    ),
    lambda view: (
        "model.aggregation: seq_mean_token_mean → constant"
        if view.facts.get("model.aggregation") == "seq_mean_token_mean"
        else None
    ),
)
_TRUNCATION_UNPUNISHED = Cause(
    "truncation_unpunished",
    "running into the limit costs nothing",
    1.0,
    "add the reward function overlong (DAPO's soft punishment), or model.mask_truncated: false with a wrong answer's 0",
    (
        Sign("cut completions are left out of the loss", fact_is("model.mask_truncated", True), 3.0, 0.6),
        Sign("the share of cut completions has risen, too", rose("completions/clipped_ratio", by=0.1), 2.0, 0.3),
    ),
)
_ACCEPTS_EMPTY = Cause(
    "accepts_empty_answer",
    "the reward function gives something for an empty answer",
    2.0,
    "score an empty answer with the reward functions: above 0 if this is it",
    (Sign("the check of the reward function failed", check_failed("reward_function"), 10.0, 0.5),),
)
_FAVOURS_REPETITION = Cause(
    "reward_favours_repetition",
    "the reward pays for each repetition",
    2.0,
    "score a completion that says its answer five times: more than once if this is it",
    (
        Sign("the reward has risen with it", rose("reward", by=1e-3), 2.0, 0.3),
        Sign("within a prompt, longer answers get more reward", above("rewards/length_correlation", 0.2), 2.0, 0.6),
    ),
)
_SFT_DAMAGE = Cause(
    "sft_damage",
    "the start policy repeated itself already",
    1.0,
    "sample the start policy: it loops, too, if this is it",
    (Sign("it was so in the first rows", lambda view: _starts_repeating(view), 5.0, 0.1),),
)

KINDS = (
    Kind(
        "truncation",
        "D",
        "Many completions are cut by the token limit",
        (MAX_NEW_TOKENS_TOO_SMALL, LENGTH_HACKING, STOP_TOKEN_UNTRAINED),
        explained_by=("never_stops", "all_truncated", "length_hacking", "stop_token_untrained", "entropy_explosion"),
    ),
    Kind(
        "all_truncated",
        "D",
        "Every completion is cut by the token limit",
        (MAX_NEW_TOKENS_TOO_SMALL, STOP_TOKEN_UNTRAINED, LENGTH_HACKING),
        explained_by=("never_stops", "stop_token_untrained", "length_hacking"),
    ),
    Kind(
        "never_stops",
        "B",
        "Completions have not ended since the start",
        (STOP_TOKEN_UNTRAINED, _STOP_ID_MISSING, likely(MAX_NEW_TOKENS_TOO_SMALL, 1.5)),
        explained_by=("stop_token_untrained", "template_mismatch"),
    ),
    Kind(
        "length_hacking",
        "D",
        "Answers grow longer and no better",
        (_REWARD_FAVOURS_LENGTH, _LENGTH_NORMALISATION, _TRUNCATION_UNPUNISHED),
        explained_by=("reward_model_length_only", "entropy_explosion", "reward_hacking", "repetition", "kl_explosion"),
    ),
    Kind(
        "empty_completions",
        "E",
        "Completions are empty",
        (SHORT_ANSWER_REWARD, _ACCEPTS_EMPTY, likely(LEARNING_RATE_TOO_HIGH, 1)),
        explained_by=("reward_function_broken", "sign_flipped"),
    ),
    Kind(
        "length_collapse",
        "E",
        "Answers have become short, and worse",
        (SHORT_ANSWER_REWARD, likely(LEARNING_RATE_TOO_HIGH, 2)),
        explained_by=("empty_completions", "reward_function_broken", "sign_flipped"),
    ),
    Kind(
        "repetition",
        "E",
        "Completions repeat themselves",
        (
            likely(ENTROPY_COLLAPSE, 2, Sign("entropy fell to a third", fell("entropy", times=1 / 3), 2.0, 0.4)),
            _FAVOURS_REPETITION,
            likely(LEARNING_RATE_TOO_HIGH, 2),
            _SFT_DAMAGE,
        ),
        explained_by=(
            "sign_flipped",
            "not_a_number",
            "entropy_explosion",
            "length_hacking",
            "reward_hacking",
            "kl_explosion",
        ),
    ),
)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _starts_repeating(view: RunView) -> bool | None:
    start = start_of(view, "completions/repetition")
    return None if start is None else start > 0.4
