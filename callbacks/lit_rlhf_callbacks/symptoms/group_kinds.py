"""The kinds and causes of missing contrast within groups (symptom F); `groups` has the rules."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    DEAD_REWARD,
    ENTROPY_COLLAPSE,
    REWARD_SCALE,
    TASK_TOO_HARD,
    ZERO_CONTRAST,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.gains import has_risen, is_mostly_right, is_too_easy, is_too_hard
from lit_rlhf_callbacks.symptoms.readings import above, below, check_failed, fact_below, rose, start_of


def _constant_is(view: RunView, values: tuple[float, ...], *, inside: bool) -> bool | None:
    if not view.history.has("reward"):
        return None
    return (view.history["reward"].last in values) == inside


def _evals_pass(view: RunView) -> bool | None:
    return view.history["eval/pass_at_1"].last > 0.02 if view.history.has("eval/pass_at_1") else None


def _fell_to_third(view: RunView) -> bool | None:
    return below("reward_std", (start_of(view, "reward_std") or 0.0) / 3)(view)


def _is_worse(view: RunView) -> bool | None:
    rises = has_risen(view)
    return None if rises is None else not rises


BROKEN_POLICY = (
    "not_a_number",
    "sign_flipped",
    "never_stops",
    "entropy_explosion",
    "empty_completions",
    "length_hacking",
    "all_truncated",
    "entropy_collapse",
    "kl_explosion",
)


def _was_alive(view: RunView) -> bool | None:
    """Tell whether rewards differed when the run began."""
    spread = start_of(view, "reward_std") or start_of(view, "advantages/std")
    return None if spread is None else spread > 0


_TOO_EASY = Cause(
    "task_too_easy",
    "the task is too easy: nearly all samples are right",
    1.0,
    "look at reward and eval/pass_at_1: near the top if this is it; take harder prompts, or drop_zero_std",
    (
        Sign("at least 80 % of the answers are right", is_too_easy, 6.0, 0.3),
        Sign("more than half of the answers are right", is_mostly_right, 2.0, 0.2),
    ),
    lambda view: "model.drop_zero_std: false → true" if view.facts.get("model.drop_zero_std") is False else None,
)
_TOO_HARD = likely(
    TASK_TOO_HARD,
    1,
    Sign("at most 20 % of the answers are right", is_too_hard, 6.0, 0.3),
    Sign("more than half of the answers are right", is_mostly_right, 0.1),
    Sign("rewards differed when the run began", _was_alive, 0.5),
)
ALL_TRUNCATED = Cause(
    "all_truncated",
    "completions are cut before they reach an answer",
    1.0,
    "look at completions/clipped_ratio: near 1 if this is it; raise model.sampling.max_new_tokens",
    (Sign("most completions are cut by the limit", above("completions/clipped_ratio", 0.8, 3), 10.0, 0.02),),
)
_REWARD_CONSTANT = Cause(
    "reward_constant",
    "the reward function returns one value whatever it is given",
    2.0,
    "call it on a right answer, on a wrong one and on none: three equal numbers if this is it",
    (
        Sign("the check of the reward function failed", check_failed("reward_function"), 10.0, 0.3),
        Sign("the constant is neither 0 nor 1", lambda view: _constant_is(view, (0.0, 1.0), inside=False), 5.0, 0.7),
    ),
)
_REWARD_NONE = Cause(
    "reward_none",
    "the reward function returns nothing, or NaN",
    1.0,
    "look at rewards/num_dropped: the number of completions if this is it",
    (Sign("completions were dropped for want of a reward", above("rewards/num_dropped", 0.5, 3), 20.0, 0.1),),
)
_GRADER_CRASHES = Cause(
    "grader_crashes",
    "what grades the answers fails, and its failure is scored as a wrong answer",
    1.0,
    "call the reward function by hand and look for swallowed exceptions and timeouts",
    (
        Sign("all rewards are 0", lambda view: _constant_is(view, (0.0,), inside=True), 2.0, 0.2),
        Sign("rewards differed when the run began", _was_alive, 0.3),
        Sign("the check of the reward function failed", check_failed("reward_function"), 3.0, 0.4),
    ),
)
_FORMAT_MISMATCH = Cause(
    "answer_format_mismatch",
    "answers stand in another form than the reward function reads",
    1.5,
    "read ten completions of samples.jsonl beside their answers: right ones scored 0 if this is it",
    (
        Sign("all rewards are 0", lambda view: _constant_is(view, (0.0,), inside=True), 2.0, 0.2),
        Sign("rewards differed when the run began", _was_alive, 0.3),
        Sign("the check of the reward function failed", check_failed("reward_function"), 0.3),
    ),
)
_SMALL_GROUP_STD = Cause(
    "small_group_std",
    "dividing by the spread of nearly equal rewards makes them large",
    2.0,
    "look at reward_std at the onset; model.advantage_scale: none (DrGRPO) does not divide",
    (
        Sign("the spread within groups has fallen to a third", lambda view: _fell_to_third(view), 4.0, 0.5),
        Sign("groups have fewer than four completions", fact_below("model.group_size", 4), 2.0),
    ),
    lambda view: "model.advantage_scale: group → none" if view.facts.get("model.advantage_scale") == "group" else None,
)

KINDS = (
    Kind(
        "zero_contrast",
        "F",
        "Most groups have equal rewards and teach nothing",
        (
            likely(_TOO_HARD, 3),
            likely(_TOO_EASY, 3),
            likely(ENTROPY_COLLAPSE, 1.5, Sign("the reward has not risen", lambda view: _is_worse(view), 2.0, 0.5)),
            likely(DEAD_REWARD, 1),
            ALL_TRUNCATED,
        ),
        explained_by=("dead_reward", "reward_function_broken", *BROKEN_POLICY),
    ),
    Kind(
        "dead_reward",
        "F",
        "The reward is the same for everything",
        (
            _REWARD_CONSTANT,
            _FORMAT_MISMATCH,
            _GRADER_CRASHES,
            _REWARD_NONE,
            likely(TASK_TOO_HARD, 1.0, Sign("held-out answers are right now and then", _evals_pass, 0.3)),
            likely(ALL_TRUNCATED, 1.0),
            likely(ENTROPY_COLLAPSE, 1.0, Sign("rewards differed when the run began", _was_alive, 2.0, 0.1)),
        ),
        explained_by=("reward_function_broken", *BROKEN_POLICY),
    ),
    Kind(
        "advantage_collapse",
        "F",
        "Advantages have shrunk to nothing",
        (likely(ZERO_CONTRAST, 4), likely(_REWARD_CONSTANT, 1)),
        explained_by=("dead_reward", "zero_contrast", *BROKEN_POLICY),
    ),
    Kind(
        "advantage_spike",
        "F",
        "Advantages have grown",
        (
            likely(REWARD_SCALE, 3, Sign("rewards spread three times as far", rose("reward_std", times=3.0), 4.0, 0.3)),
            _SMALL_GROUP_STD,
        ),
        explained_by=("reward_variance_jump",),
    ),
    Kind(
        "reward_std_death",
        "F",
        "Rewards of a prompt no longer differ",
        (likely(_TOO_EASY, 2), likely(ENTROPY_COLLAPSE, 2), likely(_TOO_HARD, 1), likely(_REWARD_CONSTANT, 0.5)),
        explained_by=("dead_reward", "zero_contrast", *BROKEN_POLICY),
    ),
)
