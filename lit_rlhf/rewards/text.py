"""From a completion in TRL's form to the text that a reward function reads."""

import re
from collections.abc import Sequence
from typing import Any

from lit_rlhf_callbacks.errors import UserError

Completion = str | list[dict[str, Any]]
"""Plain text, or a conversation that ends with the assistant's message."""


def completion_text(completion: Completion) -> str:
    """Give the text of one completion.

    Args:
        completion: Plain text or ``[{"role": "assistant", "content": text}]``.

    Returns:
        The text; of a conversation, the last message's.

    >>> completion_text([{"role": "assistant", "content": "42"}]), completion_text("42")
    ('42', '42')
    """
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def tagged_text(text: str, tag: str | None) -> str | None:
    """Give what stands inside the last ``<tag>...</tag>``, stripped.

    Args:
        text: Where to look.
        tag: Tag name without brackets; None takes the whole text.

    Returns:
        The stripped text, or None when the tag does not occur as a pair.

    >>> tagged_text("<answer>1</answer> no: <answer> 2 </answer>", "answer")
    '2'
    >>> tagged_text("2 ", None)
    '2'
    """
    if tag is None:
        return text.strip()
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, end) if end >= 0 else -1
    return text[start + len(tag) + 2 : end].strip() if start >= 0 else None


def check_tags(tags: Sequence[str], function_name: str) -> None:
    """Refuse tags with which no completion could ever earn anything.

    Args:
        tags: Tag names without brackets.
        function_name: Whose setting it is.

    Raises:
        UserError: A tag is not a plain name, or one occurs twice.
    """
    are_names = not isinstance(tags, str) and all(re.fullmatch(r"[\w.-]+", str(tag)) for tag in tags)
    if not tags or not are_names or len(set(tags)) < len(tags):
        raise UserError(
            f"reward function '{function_name}': tags are different names without brackets, such as [think, answer], "
            f"not {tags!r}"
        )
