"""Pseudo-words made of syllables: an endless, seeded supply, so that no word list has to be shipped.

Which split a word belongs to is a function of the word alone (a hash), so a held-out word is never in the training
split, whatever the seed, the length limits, the number of rows or the version of Python.
"""

import hashlib
import random
from functools import cache
from typing import Literal

Split = Literal["train", "eval"]

MIN_LENGTH = 3
MAX_LENGTH = 12

ONSETS = [*"bcdfghjklmnprstvwyz", "br", "ch", "dr", "fl", "gr", "kl", "pl", "qu", "sh", "st", "th", "tr"]
VOWELS = [*"aeiou", "ai", "ea", "ou"]
CODAS = ["", "", "", *"klmnprstx"]

_VOCABULARY_SEED = 20_240_229
_DRAWS_PER_LENGTH = 9_000
_EVAL_SHARE_OF_256 = 10


def make_word(rng: random.Random, length: int) -> str:
    """String syllables together and cut them at ``length`` letters.

    Args:
        rng: Source of randomness; it is advanced.
        length: Number of letters, at least 1.

    Returns:
        A lower-case word of exactly ``length`` letters.

    Example:
        >>> len(make_word(random.Random(0), 7))
        7
    """
    word = ""
    while len(word) < length:
        word += rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
    return word[:length]


def split_of(word: str) -> Split:
    """Say which split a word belongs to, from the word alone.

    About 4 % of all words are held out: those whose SHA-256 begins with a byte below 10.

    Args:
        word: The word, in lower case.

    Returns:
        ``"eval"`` for a held-out word, else ``"train"``.
    """
    return "eval" if hashlib.sha256(word.encode()).digest()[0] < _EVAL_SHARE_OF_256 else "train"


@cache
def vocabulary(length: int, split: Split) -> tuple[str, ...]:
    """List the words of one length in one split.

    Args:
        length: Number of letters.
        split: ``"train"`` or ``"eval"``.

    Returns:
        Distinct words in the order they were first drawn; some 7,000 to 8,600 for training and 300 to 370 held out,
        fewer of each for words of three and four letters, of which there are not as many.
    """
    rng = random.Random(_VOCABULARY_SEED * 100 + length)
    words = dict.fromkeys(make_word(rng, length) for _ in range(_DRAWS_PER_LENGTH))
    return tuple(word for word in words if split_of(word) == split)
