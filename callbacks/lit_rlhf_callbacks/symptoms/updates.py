"""Updates that do nothing: none at all, swallowed by rounding, or too small to move the policy."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import (
    BF16_WEIGHTS,
    DEAD_REWARD,
    LEARNING_RATE_TOO_LOW,
    NOTHING_TRAINABLE,
    likely,
)
from lit_rlhf_callbacks.symptoms.finding import Alarm, Evidence, Rule, RunView
from lit_rlhf_callbacks.symptoms.objective import (
    distance_name,
    first_update,
    known_start,
    loss_name,
    mean_of,
    num_updates,
    stage_of,
)
from lit_rlhf_callbacks.symptoms.readings import above, change, fact_above
from lit_rlhf_callbacks.symptoms.robust import shift

MIN_ROWS = 20  # beyond the 20 of the baseline: 40 after warm-up
MIN_UPDATES = 40
SWALLOWED = 0.1  # share of weights an update changes; what is unused in a batch explains no such loss
PINNED = 1e-4  # nats per token
LITTLE_LEARNED = 0.01  # of the loss at the start
TINY_PATH = 3e-3  # sum over updates of |change| / |weights|

_FITS_FP32 = fact_above("optimizer.lr", 1e-8)
_ZERO_GRADIENT = Cause(
    "zero_gradient",
    "the gradient is exactly zero",
    1.0,
    "look at grad_norm: 0 if this is it",
    (Sign("the last gradients were exactly zero", lambda view: _is_zero(view, "grad_norm"), 20.0, 0.05),),
)
_BETA_TOO_HIGH = Cause(
    "beta_too_high",
    "beta holds the policy to its reference too tightly",
    1.0,
    "run 50 updates with a third of the beta: kl and margins grow if this is it",
    (Sign("beta is 1 or more", fact_above("beta", 0.99), 4.0, 0.3),),
    change("model.beta", "beta", lambda old: old / 3),
)

KINDS = (
    Kind(
        "no_update",
        "A",
        "An update changes no weight",
        (likely(NOTHING_TRAINABLE, 3), likely(_ZERO_GRADIENT, 3), likely(DEAD_REWARD, 2)),
        explained_by=("dead_reward", "zero_contrast", "zero_gradient", "not_a_number", "labels_masked"),
    ),
    Kind(
        "updates_swallowed",
        "A",
        "Most of an update is rounded away",
        (
            likely(BF16_WEIGHTS, 5, Sign("fp32 would hold such updates", fact_above("optimizer.lr", 1e-8), 10.0)),
            likely(
                LEARNING_RATE_TOO_LOW, 2, Sign("fp32 would hold such updates", fact_above("optimizer.lr", 1e-8), 0.3)
            ),
        ),
        explained_by=("no_update",),
    ),
    Kind(
        "policy_not_moving",
        "A",
        "The policy stays where it started",
        (
            likely(LEARNING_RATE_TOO_LOW, 6, Sign("gradients are not zero", above("grad_norm", 1e-6), 1.5, 0.2)),
            likely(BF16_WEIGHTS, 1),
            likely(NOTHING_TRAINABLE, 1),
            likely(_BETA_TOO_HIGH, 1),
        ),
        explained_by=(
            "no_update",
            "updates_swallowed",
            "dead_reward",
            "zero_contrast",
            "all_truncated",
            "zero_gradient",
            "reference_moved",
        ),
    ),
)


def no_update(view: RunView) -> Alarm | None:
    """Name updates that changed not one weight, twice in a row, at a learning rate above zero."""
    if not view.history.has("update/share_changed", num_rows=2):
        return None
    shares = view.history["update/share_changed"]
    if shares.last != 0.0 or shares.recent_values(2) != [0.0, 0.0] or _rate(view) == 0.0:
        return None
    window = (shares.recent[-2][0], shares.last_step)
    evidence = (Evidence("update/share_changed", 0.0, threshold=0.0, unit="share", window=window),)
    summary = f"the updates at {window[0]} and {window[1]} changed not one of the trained weights"
    return Alarm("no_update", "critical", "exact", summary, evidence, (window[0], window[0]))


def updates_swallowed(view: RunView) -> Alarm | None:
    """Name updates of which hardly any weight keeps a trace, twice in a row."""
    if not view.history.has("update/share_changed", num_rows=2):
        return None
    shares = view.history["update/share_changed"]
    values = shares.recent_values(2)
    if not 0.0 < max(values) < SWALLOWED:
        return None
    window = (shares.recent[-2][0], shares.last_step)
    evidence = (Evidence("update/share_changed", shares.last, 1.0, SWALLOWED, "share", window),)
    summary = f"an update changes only {max(values):.1%} of the weights; the rest is rounded away"
    return Alarm("updates_swallowed", "warn", "exact", summary, evidence, (shares.trace[0][0], window[0]))


def policy_not_moving(view: RunView) -> Alarm | None:
    """Name a policy that training leaves where it started, while its gradient is not zero.

    A run that learns would have moved: its distance from the start, its loss below a known start, or its reward would
    show it, and each must say no.
    """
    stage = stage_of(view)
    if stage not in ("rl", "preference") or not _is_long_enough(view):
        return None
    found = _rl_is_pinned(view) if stage == "rl" else _pairs_are_pinned(view)
    if found is None:
        return None
    path = path_length(view)
    evidence = (*found, *((Evidence("update/relative_norm", path, unit="summed over updates"),) if path else ()))
    summary = (
        f"after {num_updates(view):.0f} updates {found[0].metric} is {found[0].value:.3g}, where it began: "
        "the policy does not move"
    )
    return Alarm("policy_not_moving", "warn", "inferred", summary, evidence, (first_update(view), first_update(view)))


def path_length(view: RunView) -> float | None:
    """Return how far the weights can have gone: updates × the median of |change| / |weights|; None if not measured."""
    if not view.history.has("update/relative_norm"):
        return None
    return num_updates(view) * view.history["update/relative_norm"].recent_median(5)


def barely_moved(view: RunView) -> bool | None:
    """Tell whether the weights, or the distribution, are where they began; None where neither is measured."""
    path, name = path_length(view), distance_name(view)
    distance = view.history[name].recent_median(3) if name is not None else None
    if path is None and distance is None:
        return None
    return (path is None or path < TINY_PATH) and (distance is None or abs(distance) < 10 * PINNED)


RULES: tuple[Rule, ...] = (no_update, updates_swallowed, policy_not_moving)


def _rl_is_pinned(view: RunView) -> tuple[Evidence, ...] | None:
    name = distance_name(view)
    if name is None or (view.facts.get("beta") == 0 and name == "kl"):
        return None
    distance = view.history[name]
    if distance.count < 2 or not 0.0 <= distance.recent_median(5) < PINNED:
        return None
    reward = view.history.series.get("reward")
    if reward is not None and shift(reward, "up", min_size=1e-6) is not None:
        return None
    return (Evidence(name, distance.recent_median(5), 0.0, PINNED, "nats/token"),)


def _pairs_are_pinned(view: RunView) -> tuple[Evidence, ...] | None:
    name = loss_name(view)
    known = known_start(view, name) if name is not None else None
    if name is None or not known or f"step0.{name}" not in view.facts or barely_moved(view) is False:
        return None
    late = mean_of(view.history[name].recent_values(MIN_ROWS))
    if abs(known - late.value) > LITTLE_LEARNED * abs(known) or late.error > LITTLE_LEARNED * abs(known):
        return None
    return (Evidence(name, late.value, known, known * (1 - LITTLE_LEARNED)),)


def _is_long_enough(view: RunView) -> bool:
    name = "grad_norm" if view.history.has("grad_norm") else (loss_name(view) or "reward")
    return view.history.has(name) and view.history[name].is_armed(MIN_ROWS) and num_updates(view) >= MIN_UPDATES


def _rate(view: RunView) -> float | None:
    return view.history["learning_rate"].last if view.history.has("learning_rate") else None


def _is_zero(view: RunView, metric: str) -> bool | None:
    return view.history[metric].recent_median(3) == 0.0 if view.history.has(metric) else None
