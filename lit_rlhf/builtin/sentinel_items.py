"""Multiple-choice items on what the embedded model learned besides its task: sentinels of a training run.

No reward of the built-in tasks touches the order of the letters or the made-up facts, so a run that loses them is
forgetting. Each line of ``sentinels/*.jsonl`` is ``{"question": str, "options": [str, str, str, str], "answer": int}``;
``answer`` is the index of the right option. Options are scored by log-probability per token (EOS included).

    python -m lit_rlhf.builtin.sentinel_items      # writes the two files anew
"""

import json
import random
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

from lit_rlhf.builtin.words import make_word

Item = dict[str, Any]

_LETTERS_SEED = 11
_FACTS_SEED = 13
_NUM_COUNTRIES = 30
_NUM_WRONG = 3


def letter_order() -> list[Item]:
    """Ask for the letter after, before and between others.

    Returns:
        74 items: 25 of "after", 25 of "before", 24 of "between".
    """
    letters = string.ascii_lowercase
    questions = [(f"Which letter comes after {a}?", b) for a, b in pairwise(letters)]
    questions += [(f"Which letter comes before {b}?", a) for a, b in pairwise(letters)]
    questions += [
        (f"Which letter is between {a} and {c}?", b) for a, b, c in zip(letters, letters[1:], letters[2:], strict=False)
    ]
    rng = random.Random(_LETTERS_SEED)
    return [_item(rng, question, answer, list(letters)) for question, answer in questions]


def made_up_facts() -> list[Item]:
    """Ask for the capitals and the rivers of invented countries.

    Returns:
        60 items: 30 countries, two facts each. The wrong options are the same fact of other countries.
    """
    rng = random.Random(_FACTS_SEED)
    names: dict[str, None] = {}
    while len(names) < 3 * _NUM_COUNTRIES:
        names[make_word(rng, rng.randint(4, 6)).capitalize()] = None
    everything = list(names)
    countries, capitals, rivers = (everything[i::3] for i in range(3))
    items = []
    for country, capital, river in zip(countries, capitals, rivers, strict=True):
        items.append(_item(rng, f"What is the capital of {country}?", capital, capitals))
        items.append(_item(rng, f"Which river runs through {country}?", river, rivers))
    return items


def _item(rng: random.Random, question: str, answer: str, candidates: list[str]) -> Item:
    options = rng.sample([option for option in candidates if option != answer], _NUM_WRONG)
    options.insert(rng.randint(0, _NUM_WRONG), answer)
    return {"question": question, "options": options, "answer": options.index(answer)}


def write_sentinels(folder: Path) -> None:
    """Write both sets as JSON lines.

    Args:
        folder: Where ``letter_order.jsonl`` and ``made_up_facts.jsonl`` go; it must exist.
    """
    for name, items in (("letter_order", letter_order()), ("made_up_facts", made_up_facts())):
        lines = "".join(json.dumps(item) + "\n" for item in items)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    write_sentinels(Path(__file__).parent / "sentinels")
