"""The kinds and causes of a policy that becomes certain, scatters or runs away; `policy` has the rules."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    BETA_TOO_LOW,
    LEARNING_RATE_TOO_HIGH,
    NO_KL,
    REFERENCE_NOT_START,
    REWARD_SCALE,
    SAMPLING_TRUNCATED,
    STALE_SAMPLER_WEIGHTS,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import RunView
from lit_rlhf_callbacks.symptoms.gains import num_groups
from lit_rlhf_callbacks.symptoms.readings import (
    above,
    below,
    change,
    check_failed,
    fact_above,
    fact_is,
    number,
    start_of,
)

FEW_LENGTHS = ("length", "overlong", "brevity", "short")


def reward_names(view: RunView) -> list[str]:
    """Return the names of the reward functions, from the config or from the columns."""
    names: list[str] = []
    for reward in view.facts.get("model.rewards") or []:
        names.append(str(reward.get("function", "")) if isinstance(reward, dict) else str(reward))
    if names:
        return names
    columns = [name.split("/") for name in view.history.series if name.startswith("rewards/")]
    return [parts[1] for parts in columns if len(parts) == 3 and parts[2] == "mean"]


def rewards_shortness(view: RunView) -> bool | None:
    """Tell whether a reward function looks at length; None without names."""
    names = reward_names(view)
    return any(part in name.lower() for name in names for part in FEW_LENGTHS) if names else None


def is_learned_reward(view: RunView) -> bool | None:
    """Tell whether a reward comes from a model."""
    names = reward_names(view)
    return any("reward_model" in name or "learned" in name.lower() for name in names) if names else None


def _one_pass(view: RunView) -> bool | None:
    """Tell whether each rollout is used for one update only, where no ratio can be clipped."""
    windows, epochs = number(view, "model.windows_per_phase"), number(view, "model.epochs_per_phase")
    return None if windows is None or epochs is None else windows * epochs <= 1


def _is_held_firmly(view: RunView) -> bool | None:
    """Tell whether beta is so large that a KL which grows all the same must be pushed the wrong way."""
    beta = number(view, "beta", "model.beta")
    return None if beta is None else beta >= 0.1


def _has_few_prompts(view: RunView) -> bool | None:
    prompts = number(view, "num_train")
    return None if prompts is None else prompts < 64 or view.history.step * num_groups(view) > 10 * prompts


def _collapsed_fast(view: RunView) -> bool | None:
    start = start_of(view, "entropy")
    points = [(step, value) for step, value in view.history["entropy"].trace] if start else []
    if not start or not points:
        return None
    high = [step for step, value in points if value > 0.5 * start]
    low = [step for step, value in points if value < 0.1 * start]
    return bool(low) and low[0] - (high[-1] if high else points[0][0]) <= 15


SHORT_ANSWER_REWARD = Cause(
    "short_answer_reward",
    "the reward favours short or empty answers",
    2.0,
    "score an empty answer and a long right one with the reward functions: the empty one must not win",
    (
        Sign("within a prompt, shorter answers get more reward", below("rewards/length_correlation", -0.2), 4.0, 0.4),
        Sign("a reward function looks at length", rewards_shortness, 2.0, 0.5),
        Sign("more than a tenth of the completions are empty", above("completions/empty_ratio", 0.1, 5), 4.0, 0.6),
    ),
)
_CLIP_HIGHER_MISSING = Cause(
    "clip_higher_missing",
    "rare tokens cannot rise, since the upper clip is as narrow as the lower (DAPO's clip-higher)",
    1.0,
    "run again with model.clip_high 0.28: entropy falls more slowly if this is it",
    (
        Sign("both clips are equally wide", lambda view: _clips_are_equal(view), 1.5, 0.2),
        Sign("each rollout makes one update, so nothing is clipped", _one_pass, 0.1),
        Sign("tokens are clipped above", above("clip_ratio/high_mean", 0.02), 2.0, 0.5),
    ),
    change("model.clip_high", "model.clip_high", lambda old: 0.28),
)
_REPEATED_PROMPTS = Cause(
    "repeated_prompts",
    "the same few prompts come again and again",
    1.0,
    "compare global_step × prompts per update with num_train in run.json",
    (Sign("the run has seen its prompts more than ten times", _has_few_prompts, 4.0, 0.3),),
)
_ENTROPY_BONUS = Cause(
    "entropy_bonus_too_high",
    "the entropy bonus outweighs the reward",
    2.0,
    "run again with model.entropy_coef 0: entropy stays if this is it",
    (Sign("there is an entropy bonus", fact_above("model.entropy_coef", 0.0), 6.0, 0.02),),
    change("model.entropy_coef", "model.entropy_coef", lambda old: old / 10),
)
_CLIP_HIGH_TOO_WIDE = Cause(
    "clip_high_too_wide",
    "the upper clip is so wide that single tokens jump",
    1.0,
    "look at ratio/max, then run again with model.clip_high 0.28",
    (
        Sign("the upper clip is 0.4 or more", lambda view: _fact_at_least(view, "model.clip_high", 0.4), 4.0, 0.3),
        Sign("each rollout makes one update, so nothing is clipped", _one_pass, 0.1),
    ),
    change("model.clip_high", "model.clip_high", lambda old: 0.28),
)
REWARD_NOISE = Cause(
    "reward_noise",
    "the reward has little to do with the answer",
    1.5,
    "score the same completions twice and by hand: ranks that disagree show it",
    (Sign("the check of the reward function failed", check_failed("reward_function"), 4.0, 0.6),),
)
_KL_ESTIMATOR = Cause(
    "kl_estimator_wrong",
    "the KL is estimated wrongly, and pushes the wrong way",
    1.0,
    "compare kl/k1 and kl/k3 on the same rows: k1 far from k3, or k3 below 0, shows it",
    (
        Sign("the check of the KL estimators failed", check_failed("kl_estimator"), 20.0, 0.6),
        Sign("beta is 0", fact_is("beta", 0, 0.0), 0.02),
        Sign("beta is 0.1 or more, which should have held the policy", _is_held_firmly, 10.0),
    ),
)
_TOO_MANY_EPOCHS = Cause(
    "too_many_epochs_per_phase",
    "each rollout is used for too many updates",
    2.0,
    "run again with model.epochs_per_phase 1 and windows_per_phase 1: nothing is clipped",
    (Sign("each rollout makes one update", _one_pass, 0.02, 3.0),),
    change("model.epochs_per_phase", "model.epochs_per_phase", lambda old: max(1.0, old // 2)),
)
_STALE_ROLLOUTS = Cause(
    "stale_rollouts",
    "samples are older than the policy that learns from them",
    1.5,
    "look at ratio/mean in a phase's first update: exactly 1 unless this is it",
    (
        Sign("each rollout makes one update, which should clip nothing", _one_pass, 6.0),
        *STALE_SAMPLER_WEIGHTS.signs,
    ),
)
_ASYMMETRIC = Cause(
    "one_sided_updates",
    "tokens are pushed mostly one way: clipped below where wrong answers prevail, above where rare right ones do",
    1.0,
    "look at advantages/mean and reward; a wider clip on the busy side lets those tokens move",
)
_BETA_ZERO = Cause(
    "beta_zero_with_learned_reward",
    "a learned reward is right only near the data it was learned on, and nothing keeps the policy there",
    1.0,
    "run 30 updates with beta 0.04 and compare held-out answers: they fall later or not at all",
    (),
    lambda view: "model.beta: 0 → 0.04",
)
ROOTS = ("not_a_number", "sign_flipped", "reward_function_broken", "reference_moved")

KINDS = (
    Kind(
        "entropy_collapse",
        "E",
        "The policy has become certain and gains nothing by it",
        (
            likely(
                LEARNING_RATE_TOO_HIGH, 4, Sign("entropy fell to a tenth within 15 updates", _collapsed_fast, 2.0, 0.6)
            ),
            SHORT_ANSWER_REWARD,
            likely(NO_KL, 1),
            _CLIP_HIGHER_MISSING,
            _REPEATED_PROMPTS,
            SAMPLING_TRUNCATED,
        ),
        explained_by=(
            *ROOTS,
            "dead_reward",
            "empty_completions",
            "entropy_explosion",
            "reward_hacking",
            "repetition",
            "length_hacking",
        ),
    ),
    Kind(
        "entropy_explosion",
        "E",
        "The policy scatters",
        (likely(LEARNING_RATE_TOO_HIGH, 4), _ENTROPY_BONUS, _CLIP_HIGH_TOO_WIDE, REWARD_NOISE),
        explained_by=ROOTS,
    ),
    Kind(
        "kl_explosion",
        "C",
        "The policy runs away from its reference",
        (
            likely(LEARNING_RATE_TOO_HIGH, 4),
            likely(
                BETA_TOO_LOW,
                2,
                Sign("there is no KL term", fact_is("beta", 0, 0.0), 0.2),
                Sign("beta is 0.1 or more", _is_held_firmly, 0.2),
            ),
            likely(NO_KL, 1.5),
            likely(REWARD_SCALE, 1),
            _KL_ESTIMATOR,
            likely(REFERENCE_NOT_START, 1),
        ),
        explained_by=(
            *ROOTS,
            "reference_not_start",
            "kl_estimator_wrong",
            "sampler_mismatch",
            "clip_saturation",
            "entropy_explosion",
            "empty_completions",
            "reward_hacking",
            "repetition",
            "length_hacking",
            "labels_masked",
            "loss_diverges",
            "dead_reward",
        ),
    ),
    Kind("unleashed_reward", "C", "Nothing holds the policy while a model rewards it", (_BETA_ZERO,)),
    Kind(
        "clip_saturation",
        "§2",
        "A large share of the tokens is clipped",
        (likely(LEARNING_RATE_TOO_HIGH, 3), _TOO_MANY_EPOCHS, _STALE_ROLLOUTS),
        explained_by=(*ROOTS, "ratio_not_one", "sampler_mismatch"),
    ),
    Kind(
        "clip_asymmetry",
        "§2",
        "Clipping acts on one side only",
        (_ASYMMETRIC, likely(LEARNING_RATE_TOO_HIGH, 0.5)),
        explained_by=("clip_saturation",),
    ),
)


def _clips_are_equal(view: RunView) -> bool | None:
    low, high = number(view, "model.clip_low"), number(view, "model.clip_high")
    return None if low is None or high is None else high <= low


def _fact_at_least(view: RunView, name: str, bound: float) -> bool | None:
    value = number(view, name)
    return None if value is None else value >= bound
