"""Mathematical equality with math-verify (extra ``tasks``)."""

import importlib.util
from dataclasses import dataclass
from typing import Any

from lit_rlhf.rewards.text import Completion, check_tags, completion_text, tagged_text
from lit_rlhf_callbacks.errors import UserError


@dataclass(frozen=True, kw_only=True)
class MathVerify:
    r"""1 when the completion's answer equals the column ``answer`` as mathematics (1/2 and 0.5), else 0.

    The answer is what math-verify finds in the text: the last ``\boxed{}``, else the last formula or number. A row
    whose right answer is None or cannot be read gets None: this function does not apply to it. math-verify stops a
    single comparison after 5 s with an alarm signal, which works in the main thread only.
    """

    tag: str | None = None
    """Look only into the last ``<tag>...</tag>``; a completion without it is wrong."""

    def __post_init__(self) -> None:
        """Refuse to start without the package, or with a tag that no completion could have."""
        if self.tag is not None:
            check_tags([self.tag], "math_verify")
        if importlib.util.find_spec("math_verify") is None:
            raise UserError(
                "reward function 'math_verify' needs the package math-verify: pip install 'lit-rlhf[tasks]'"
            )

    def __call__(self, completions: list[Completion], answer: list[str | None]) -> list[float | None]:
        """Score each completion.

        Args:
            completions: What the model wrote.
            answer: The right answer of each row, as plain text or LaTeX.

        Returns:
            1.0, 0.0 or None per row.
        """
        golds = {right: _parse_gold(right) for right in set(answer)}
        return [
            self._score(completion_text(completion), golds[right])
            for completion, right in zip(completions, answer, strict=True)
        ]

    def _score(self, text: str, gold: list[Any]) -> float | None:
        import math_verify

        if not gold:
            return None
        own = tagged_text(text, self.tag)
        return 0.0 if own is None else float(math_verify.verify(gold, math_verify.parse(own)))


def _parse_gold(right: str | None) -> list[Any]:
    """Read a right answer; bare LaTeX or algebra such as ``x^2+2x`` is only recognised between dollars."""
    import math_verify

    if right is None:
        return []
    text = str(right).strip()
    is_marked = "$" in text or "\\boxed" in text
    parsed: list[Any] = math_verify.parse(text if is_marked else f"${text}$")
    return parsed
