"""What every sampler takes and gives."""

from dataclasses import dataclass
from typing import Literal, Protocol

from lit_rlhf.rollout.sampling import Sampling

Finish = Literal["stop", "length"]
Purpose = Literal["train", "eval", "panel"]


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model reads it."""

    prompt_id: int
    """Row number in the prompt set as read."""
    ids: list[int]


@dataclass(frozen=True)
class NoiseKey:
    """Which random numbers a generation uses; the prompt id and the sample number complete the key."""

    seed: int
    purpose: Purpose
    phase: int
    """Counts experiences over the whole run; the same on all ranks."""
    round: int = 0
    """Counts the refills of dynamic sampling."""


@dataclass(frozen=True)
class Completion:
    """What a sampler made of a prompt."""

    prompt_id: int
    sample: int
    """Number within the prompt's group, from 0."""
    prompt_ids: list[int]
    """The prompt's tokens."""
    ids: list[int]
    """The completion's tokens; the last one is EOS when ``finish`` is ``stop``."""
    logps: list[float]
    """Log-probability of each token in ``ids`` under the distribution it was drawn from, after temperature, top-k and
    top-p. Greedy tokens (temperature 0) are scored by the model's own distribution, temperature 1: under the one they
    come from every one of them has log-probability 0, which tells nothing."""
    finish: Finish
    """``stop``: ended itself with EOS. ``length``: met ``max_new_tokens`` or the end of the context."""


class Sampler(Protocol):
    """Anything that completes prompts."""

    def generate(self, prompts: list[Prompt], group_size: int, sampling: Sampling, key: NoiseKey) -> list[Completion]:
        """Draw ``group_size`` completions of every prompt.

        Args:
            prompts: What to complete; none is fine.
            group_size: Completions per prompt.
            sampling: How tokens are drawn.
            key: Which random numbers to use.

        Returns:
            ``len(prompts) * group_size`` completions, by prompt in the order given, then by sample.
        """
        ...
