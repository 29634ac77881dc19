"""Which metrics stand in which figure."""

from typing import NamedTuple


class Axis(NamedTuple):
    """Metrics of one unit, with the words that label their lines; limits to keep, where a share has them."""

    title: str
    metrics: tuple[tuple[str, str], ...]
    low: float | None = None
    high: float | None = None
    log: bool = False


class Figure(NamedTuple):
    """Axes one above the other."""

    title: str
    axes: tuple[Axis, ...]


FIGURES = (
    Figure(
        "Reward, length and truncation",
        (
            Axis("reward, and held-out pass@1 ± s.e.", (("reward", "reward"), ("eval/pass_at_1", "pass@1"))),
            Axis("mean completion length (tokens)", (("completions/mean_length", "length"),)),
            Axis("completions cut by the limit (share)", (("completions/clipped_ratio", "cut"),), 0, 1),
        ),
    ),
    Figure(
        "KL and entropy",
        (
            Axis(
                "KL from the reference or the start (nats/token)", (("kl", "KL"), ("drift/forward_kl", "from start")), 0
            ),
            Axis("entropy of the next token (nats/token)", (("entropy", "entropy"), ("eval/entropy", "held-out")), 0),
        ),
    ),
    Figure(
        "Group contrast",
        (
            Axis(
                "groups of equal rewards; rows that push (share)",
                (("frac_reward_zero_std", "equal"), ("advantages/frac_nonzero", "push")),
                0,
                1,
            ),
            Axis("standard deviation of rewards in a group", (("reward_std", "std"),), 0),
        ),
    ),
    Figure(
        "Loss",
        (
            Axis("the window's own loss", (("loss", "loss"),)),
            Axis(
                "without what is added to it, and held out",
                (
                    ("preference_loss", "training"),
                    ("eval/preference_loss", "held-out"),
                    ("reward_loss", "training"),
                    ("eval/reward_loss", "held-out"),
                    ("nll", "nll"),
                    ("eval/nll", "held-out"),
                    ("eval/loss", "held-out"),
                ),
            ),
            Axis(
                "tokens the model would have chosen (share)",
                (("mean_token_accuracy", "training"), ("eval/mean_token_accuracy", "held-out")),
            ),
        ),
    ),
    Figure(
        "Accuracy and margin",
        (
            Axis(
                "ranked right (share)",
                (
                    ("rewards/accuracies", "training"),
                    ("eval/rewards/accuracies", "held-out"),
                    ("accuracy", "training"),
                    ("eval/accuracy", "held-out"),
                ),
                None,
                1,
            ),
            Axis(
                "chosen minus rejected (reward)",
                (
                    ("rewards/margins", "training"),
                    ("eval/rewards/margins", "held-out"),
                    ("margin", "training"),
                    ("eval/margin", "held-out"),
                ),
            ),
            Axis("implicit reward", (("rewards/chosen", "chosen"), ("rewards/rejected", "rejected"))),
        ),
    ),
    Figure(
        "Chosen and rejected log-probs",
        (
            Axis("of whole answers (nats)", (("logps/chosen", "chosen"), ("logps/rejected", "rejected"))),
            Axis("per token (nats)", (("logps/chosen_per_token", "chosen"), ("logps/rejected_per_token", "rejected"))),
        ),
    ),
    Figure(
        "Gradient norm and learning rate",
        (
            Axis("gradient norm, before clipping", (("grad_norm", "norm"),), None, None, True),
            Axis("learning rate", (("learning_rate", "lr"),), 0),
        ),
    ),
)


def metrics_of(figure: Figure) -> set[str]:
    """Return the columns that a figure shows."""
    return {name for axis in figure.axes for name, _ in axis.metrics}
