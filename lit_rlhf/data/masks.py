"""Which tokens count: found by the template's own markers, else by rendering the conversation bit by bit.

A mask that is off by a few tokens trains without an error and teaches nonsense. So where a turn begins is never
guessed: the conversation up to the turn, with the generation prompt, must be a token prefix of the whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf.data.rendering import Ids, Renderer
from lit_rlhf.data.samples import Sample


class NotPrefixError(RowError):
    """The prompt's tokens are not the beginning of the whole's, so no mask can be trusted."""

    def __init__(self) -> None:
        super().__init__("is rendered differently by itself and with what follows", "see data.mask")


class Dialogue(NamedTuple):
    """A conversation and what of it is to be learned."""

    messages: list[Message]
    first: int = 0
    """The assistant's messages from this one on count."""
    all_tokens: bool = False
    """Every token counts."""


def encode_dialogues(renderer: Renderer, dialogues: Sequence[Dialogue]) -> list[Sample | RowError]:
    """Tokenise conversations and mark the assistant's turns, each with the token that stops it.

    Args:
        renderer: Of the policy's tokenizer.
        dialogues: Each with an assistant's message from ``first`` on, and one of another role before it.

    Returns:
        A sample for each, or what is wrong with it.
    """
    if renderer.has_markers:
        return _by_markers(renderer, dialogues)
    return _by_prefixes(renderer, dialogues)


def encode_texts(renderer: Renderer, prompts: Sequence[str], completions: Sequence[str]) -> tuple[list[Sample], int]:
    """Tokenise plain prompts and completions; an EOS ends each completion, and every token of it counts.

    Prompt and completion are tokenised as one text where the prompt's tokens are a prefix of it, else apart, so that
    the prompt is always what the model will be given.

    Returns:
        The samples, and how many had to be tokenised apart.
    """
    wholes = renderer.texts([prompt + completion for prompt, completion in zip(prompts, completions, strict=True)])
    heads = renderer.texts(prompts)
    apart = [n for n, (head, whole) in enumerate(zip(heads, wholes, strict=True)) if whole[: len(head)] != head]
    for n, tail in zip(apart, renderer.pieces([completions[n] for n in apart]), strict=True):
        wholes[n] = heads[n] + tail
    samples = []
    for prompt, head, whole in zip(prompts, heads, wholes, strict=True):
        ids = whole + ([renderer.eos_id] if renderer.eos_id is not None else [])
        num_prompt = len(head) if prompt else 0
        samples.append(Sample(ids, _counted_from(max(num_prompt, 1), len(ids)), num_prompt))
    return samples, len(apart)


def start_of_last_turn(mask: Sequence[bool]) -> int:
    """Find where the last run of counting tokens begins; 0 where none counts.

    >>> start_of_last_turn([False, True, False, True, True])
    3
    """
    end = len(mask)
    while end and not mask[end - 1]:
        end -= 1
    start = end
    while start and mask[start - 1]:
        start -= 1
    return start


def _counted_from(start: int, length: int) -> list[bool]:
    return [place >= start for place in range(length)]


def _assistant_turns(dialogue: Dialogue) -> list[int]:
    messages = dialogue.messages
    return [n for n in range(dialogue.first, len(messages)) if messages[n]["role"] == "assistant"]


def _by_markers(renderer: Renderer, dialogues: Sequence[Dialogue]) -> list[Sample | RowError]:
    wholes = renderer.marked([dialogue.messages for dialogue in dialogues])
    heads = renderer.conversations(
        [dialogue.messages[: _assistant_turns(dialogue)[0]] for dialogue in dialogues], add_generation_prompt=True
    )
    samples: list[Sample | RowError] = []
    for dialogue, whole, head in zip(dialogues, wholes, heads, strict=True):
        if isinstance(whole, RowError) or isinstance(head, RowError):
            samples.append(whole if isinstance(whole, RowError) else head)  # type: ignore[arg-type]
            continue
        ids, mask = whole
        if dialogue.all_tokens:
            samples.append(_all_of(ids))
        elif ids[: len(head)] != head:
            samples.append(NotPrefixError())
        else:
            mask = [counts and place >= len(head) for place, counts in enumerate(mask)]
            for place in range(len(head), len(ids)):  # some templates leave the closing token outside their markers
                if ids[place] == renderer.turn_closer and mask[place - 1]:
                    mask[place] = True
            samples.append(_trimmed(ids, mask, len(head)))
    return samples


def _by_prefixes(renderer: Renderer, dialogues: Sequence[Dialogue]) -> list[Sample | RowError]:
    turns = [[] if dialogue.all_tokens else _assistant_turns(dialogue) for dialogue in dialogues]
    flat = [(dialogue.messages, n) for dialogue, own in zip(dialogues, turns, strict=True) for n in own]
    heads = iter(renderer.conversations([messages[:n] for messages, n in flat], add_generation_prompt=True))
    closed = iter(renderer.conversations([messages[: n + 1] for messages, n in flat if n + 1 < len(messages)]))
    wholes = renderer.conversations([dialogue.messages for dialogue in dialogues])
    samples: list[Sample | RowError] = []
    for dialogue, own, whole in zip(dialogues, turns, wholes, strict=True):
        before = [next(heads) for _ in own]
        through = [next(closed) if n + 1 < len(dialogue.messages) else whole for n in own]
        bad = next((found for found in [whole, *before, *through] if isinstance(found, RowError)), None)
        if bad is not None:
            samples.append(bad)
        elif dialogue.all_tokens:
            samples.append(_all_of(whole))  # type: ignore[arg-type]
        else:
            samples.append(_between_prefixes(whole, before, through, renderer.turn_closer))  # type: ignore[arg-type]
    return samples


def _between_prefixes(whole: Ids, before: list[Ids], through: list[Ids], closer: int | None) -> Sample | RowError:
    """Mark each turn from the end of the prompt before it to its closing token."""
    mask = [False] * len(whole)
    for head, turn in zip(before, through, strict=True):
        if whole[: len(head)] != head or turn[: len(head)] != head:
            return NotPrefixError()
        end = len(head)
        while end < min(len(whole), len(turn)) and whole[end] == turn[end]:
            end += 1
        if closer is not None:  # a template may add something to a conversation's end, after the turn is closed
            while end > len(head) and whole[end - 1] != closer:
                end -= 1
        if end == len(head) or (closer is None and end < len(turn)):
            return NotPrefixError()
        mask[len(head) : end] = [True] * (end - len(head))
    return _trimmed(whole, mask, len(before[0]))


def _all_of(ids: Ids) -> Sample:
    return Sample(ids, _counted_from(1, len(ids)), 0)


def _trimmed(ids: Ids, mask: list[bool], num_prompt: int) -> Sample:
    """Leave out what follows the last token that counts: it is never trained on, and nothing is conditioned on it."""
    end = len(ids)
    while end > num_prompt and not mask[end - 1]:
        end -= 1
    return Sample(ids[:end], mask[:end], num_prompt)
