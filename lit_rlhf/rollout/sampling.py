"""How tokens are drawn: the settings a sampler is given, and what makes them invalid."""

from dataclasses import dataclass

from lit_rlhf_callbacks.errors import UserError


@dataclass(kw_only=True)
class Sampling:
    """Settings of one generation, applied in this order: temperature, ``top_k``, ``top_p``.

    >>> Sampling(temperature=0.6, max_new_tokens=16)
    Sampling(temperature=0.6, top_k=0, top_p=1.0, max_new_tokens=16)
    """

    temperature: float = 1.0
    """Logits are divided by this. 0 always takes the most probable token; ``top_k`` and ``top_p`` then mean nothing."""
    top_k: int = 0
    """Draw from this many of the most probable tokens; 0 draws from all of them."""
    top_p: float = 1.0
    """Draw from the fewest most probable tokens that together hold this much probability; 1 draws from all."""
    max_new_tokens: int = 64
    """A completion ends here when it has not ended itself."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"sampling: temperature is {self.temperature}; give 0 (greedy) or a positive number")
        if self.top_k < 0:
            raise UserError(f"sampling: top_k is {self.top_k}; give 0 (off) or a number of tokens")
        if not 0 < self.top_p <= 1:
            raise UserError(f"sampling: top_p is {self.top_p}; give a number above 0 and at most 1 (off)")
        if self.max_new_tokens < 1:
            raise UserError(f"sampling: max_new_tokens is {self.max_new_tokens}; give at least 1")
