"""Pairs that hold their prompt: what both begin with is the prompt, what follows are the answers."""

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.cells import Turns, messages_of
from lit_rlhf.data.chat import Message
from lit_rlhf.data.files import Row


def check_same_prompt(row: Row, chosen: list[Message]) -> None:
    """Let a data set repeat its prompt in a column of its own, as long as it is the same one.

    Raises:
        RowError: If it is another.
    """
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        same = prompt.strip() in [message["content"].strip() for message in chosen if message["role"] == "user"]
    else:
        same = prompt is None or messages_of(prompt, "prompt") == chosen[: len(prompt)]
    if not same:
        raise RowError("is not what 'chosen' begins with", "remove it, or leave only the answer in 'chosen'", "prompt")


def split_conversations(chosen: list[Message], rejected: list[Message]) -> tuple[Turns, list[Turns]]:
    """Part two conversations where they begin to differ.

    Returns:
        The messages they share, and the two rests.

    Raises:
        RowError: If they do not part at an assistant's message.

    >>> hello, good, bad = [{"role": role, "content": text} for role, text in
    ...                     [("user", "Hello"), ("assistant", "Hi"), ("assistant", "No")]]
    >>> split_conversations([hello, good], [hello, bad])[0] == [hello]
    True
    """
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    tails: list[Turns] = [chosen[shared:], rejected[shared:]]
    if shared == 0 or not all(tail and tail[0]["role"] == "assistant" for tail in (chosen[shared:], rejected[shared:])):
        raise RowError(
            "has another prompt than 'chosen'", "both begin with the same messages and part at an answer", "rejected"
        )
    return chosen[:shared], tails


def split_texts(chosen: str, rejected: str) -> tuple[Turns, list[Turns]]:
    """Part two texts where they begin to differ.

    Returns:
        The text they share, and the two rests.

    Raises:
        RowError: If they share nothing, or one is the beginning of the other.

    >>> split_texts("Human: Hello AI: Hi", "Human: Hello AI: No")
    ('Human: Hello AI:', [' Hi', ' No'])
    """
    pairs = enumerate(zip(chosen, rejected, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(chosen), len(rejected)))
    if shared and chosen[shared - 1] == " ":
        shared -= 1  # a space belongs to the word after it
    tails: list[Turns] = [chosen[shared:], rejected[shared:]]
    if not chosen[:shared].strip() or not chosen[shared:].strip() or not rejected[shared:].strip():
        raise RowError("shares no prompt with 'chosen'", "add a column 'prompt'", "rejected")
    return chosen[:shared], tails
