"""Which prompts a panel shows, a function of the number of the panel alone."""

import random
from collections.abc import Sequence
from typing import Any, Literal

Strategy = Literal["fixed", "round_robin", "random"]


def as_prompts(given: Sequence[Any]) -> list[dict[str, Any]]:
    """Give prompts the form that `generate` takes.

    Args:
        given: Strings, lists of chat messages, or mappings with ``prompt`` and further columns.

    Returns:
        Mappings with ``prompt`` and ``prompt_id``, the place in ``given`` where there was no id.

    Example:
        >>> as_prompts(["Hello", {"prompt": "1 + 1 =", "prompt_id": 7, "answer": "2"}])
        [{'prompt_id': 0, 'prompt': 'Hello'}, {'prompt_id': 7, 'prompt': '1 + 1 =', 'answer': '2'}]
    """
    return [
        {"prompt_id": place, **(prompt if isinstance(prompt, dict) else {"prompt": prompt})}
        for place, prompt in enumerate(given)
    ]


def choose(pool: Sequence[Any], num: int, strategy: Strategy, event: int) -> list[Any]:
    """Choose the prompts of one panel.

    Args:
        pool: All prompts.
        num: How many to show, if there are that many.
        strategy: ``fixed`` shows the first ones every time; ``round_robin`` goes on where the last panel stopped;
            ``random`` draws without replacement.
        event: The number of the panel, from 0.

    Example:
        >>> [choose("abcde", 2, "round_robin", event) for event in range(3)]
        [['a', 'b'], ['c', 'd'], ['e', 'a']]
    """
    num = min(num, len(pool))
    if strategy == "fixed":
        return list(pool[:num])
    if strategy == "round_robin":
        return [pool[(event * num + place) % len(pool)] for place in range(num)]
    return random.Random(event).sample(list(pool), num)
