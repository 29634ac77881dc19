"""Which tokens count: found by the template's own markers, else by rendering the conversation bit by bit.

A mask that is off by a few tokens trains without an error and teaches nonsense. So where a turn begins is never
guessed: the conversation up to the turn, with the generation prompt, must be a prefix of the whole. Its tokens are a
prefix too, so that a turn is learned behind exactly what the model is given when it generates.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf.data.rendering import Ids, Renderer
from lit_rlhf.data.samples import Sample


class NotPrefixError(RowError):
    """The template renders the prompt differently by itself and in the whole, so no mask can be trusted."""

    def __init__(self) -> None:
        super().__init__("is rendered differently by itself and with what follows", "see data.mask")


class Encoded(NamedTuple):
    """Tokenised rows."""

    samples: list[Sample | RowError]
    """A sample for each, or what is wrong with it."""
    num_apart: int
    """How many had to be tokenised in parts, since a prompt's last token would have merged with what follows."""


class Dialogue(NamedTuple):
    """A conversation and what of it is to be learned."""

    messages: list[Message]
    first: int = 0
    """The assistant's messages from this one on count."""
    all_tokens: bool = False
    """Every token counts."""


def encode_dialogues(renderer: Renderer, dialogues: Sequence[Dialogue]) -> Encoded:
    """Tokenise conversations and mark the assistant's turns, each with the token that stops it.

    Args:
        renderer: Of the policy's tokenizer.
        dialogues: Each with an assistant's message from ``first`` on, and one of another role before it.
    """
    if not renderer.has_markers:
        return _by_prefixes(renderer, dialogues)
    samples = _by_markers(renderer, dialogues)
    again = [place for place, sample in enumerate(samples) if isinstance(sample, NotPrefixError)]
    by_prefixes = _by_prefixes(renderer, [dialogues[place] for place in again])
    for place, sample in zip(again, by_prefixes.samples, strict=True):
        samples[place] = sample
    return Encoded(samples, by_prefixes.num_apart)


def encode_texts(renderer: Renderer, prompts: Sequence[str], completions: Sequence[str]) -> Encoded:
    """Tokenise plain prompts and completions; an EOS ends each completion, and every token of it counts.

    Prompt and completion are tokenised as one text where the prompt's tokens are a prefix of it, else apart, so that
    the prompt is always what the model will be given.
    """
    wholes = renderer.texts([prompt + completion for prompt, completion in zip(prompts, completions, strict=True)])
    heads = renderer.texts(prompts)
    apart = [n for n, (head, whole) in enumerate(zip(heads, wholes, strict=True)) if whole[: len(head)] != head]
    for n, tail in zip(apart, renderer.pieces([completions[n] for n in apart]), strict=True):
        wholes[n] = heads[n] + tail
    samples: list[Sample | RowError] = []
    for prompt, head, whole in zip(prompts, heads, wholes, strict=True):
        ids = whole + ([renderer.eos_id] if renderer.eos_id is not None else [])
        num_prompt = len(head) if prompt else 0
        samples.append(Sample(ids, _counted_from(max(num_prompt, 1), len(ids)), num_prompt))
    return Encoded(samples, len(apart))


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
    heads = renderer.prompts([dialogue.messages[: _assistant_turns(dialogue)[0]] for dialogue in dialogues])
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


def _by_prefixes(renderer: Renderer, dialogues: Sequence[Dialogue]) -> Encoded:
    turns = [[] if dialogue.all_tokens else _assistant_turns(dialogue) for dialogue in dialogues]
    flat = [(dialogue.messages, n) for dialogue, own in zip(dialogues, turns, strict=True) for n in own]
    before = iter(renderer.strings([messages[:n] for messages, n in flat], add_generation_prompt=True))
    through = iter(renderer.strings([messages[: n + 1] for messages, n in flat]))
    samples: list[Sample | RowError] = []
    cuts: dict[int, list[str]] = {}  # of each usable dialogue: prompt, turn, prompt, turn, ...
    for dialogue, own, whole in zip(
        dialogues, turns, renderer.strings([dialogue.messages for dialogue in dialogues]), strict=True
    ):
        texts = [whole, *(next(before) for _ in own), *(next(through) for _ in own)]
        pieces = next((text for text in texts if isinstance(text, RowError)), None) or _cut(
            texts[0],
            texts[1 : len(own) + 1],
            texts[len(own) + 1 :],
            renderer.closing_text,  # type: ignore[arg-type]
        )
        if isinstance(pieces, RowError):
            samples.append(pieces)
        else:
            cuts[len(samples)] = pieces
            samples.append(Sample([], [], 0))  # in its place below
    encoded = _tokenise_cut(renderer, list(cuts.values()))
    for place, sample in zip(cuts, encoded.samples, strict=True):
        samples[place] = sample
    return Encoded(samples, encoded.num_apart)


def _cut(whole: str, before: Sequence[str], through: Sequence[str], closer: str | None) -> list[str] | RowError:
    """Cut a rendered conversation where each turn begins and where it is closed; what follows the last is left out.

    Args:
        whole: All of it.
        before: Up to each turn, with the generation prompt.
        through: Up to each turn's end.
        closer: The special token that ends a turn, if any.
    """
    pieces, done = [], 0
    for head, turn in zip(before, through, strict=True):
        if not whole.startswith(head) or not turn.startswith(head):
            return NotPrefixError()
        end = len(head)
        while end < min(len(whole), len(turn)) and whole[end] == turn[end]:
            end += 1
        if closer is not None:  # a template may add something to a conversation's end, after the turn is closed
            closed = whole.rfind(closer, len(head), end)
            end = closed + len(closer) if closed >= 0 else len(head)
        if end == len(head) or (closer is None and end < len(turn)):
            return NotPrefixError()
        pieces += [whole[done : len(head)], whole[len(head) : end]]
        done = end
    return pieces or [whole]


def _tokenise_cut(renderer: Renderer, cuts: Sequence[list[str]]) -> Encoded:
    """Tokenise conversations cut into prompt, turn, prompt, turn, ...: as one text if every cut is between tokens."""
    prefixes = [["".join(pieces[: n + 1]) for n in range(len(pieces))] for pieces in cuts]
    ids = iter(renderer.pieces([prefix for own in prefixes for prefix in own]))
    found = [[next(ids) for _ in own] for own in prefixes]
    apart = [n for n, own in enumerate(found) if any(own[-1][: len(prefix)] != prefix for prefix in own)]
    again = iter(renderer.pieces([piece for n in apart for piece in cuts[n]]))
    for n in apart:
        grown: Ids = []
        found[n] = [grown := grown + next(again) for _ in cuts[n]]
    samples: list[Sample | RowError] = []
    for own in found:
        whole, ends = renderer.one_bos(own[-1]), [len(prefix) - len(own[-1]) for prefix in own]
        if len(own) == 1:
            samples.append(_all_of(whole))
            continue
        mask = [False] * len(whole)
        for start, end in zip(ends[::2], ends[1::2], strict=True):  # counted from the right: a BOS may be gone
            start, end = start + len(whole), end + len(whole)
            mask[start:end] = [True] * (end - start)
        samples.append(Sample(whole, mask, ends[0] + len(whole)))
    return Encoded(samples, len(apart))


def _all_of(ids: Ids) -> Sample:
    return Sample(ids, _counted_from(1, len(ids)), 0)


def _trimmed(ids: Ids, mask: list[bool], num_prompt: int) -> Sample:
    """Leave out what follows the last token that counts: it is never trained on, and nothing is conditioned on it."""
    end = len(ids)
    while end > num_prompt and not mask[end - 1]:
        end -= 1
    return Sample(ids[:end], mask[:end], num_prompt)
