"""Turns found by rendering a conversation bit by bit, for templates that do not mark what the assistant generates."""

from collections.abc import Sequence

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.dialogue import Dialogue, Encoded, NotPrefixError, all_of
from lit_rlhf.data.rendering import Ids, Renderer
from lit_rlhf.data.samples import Sample


def by_prefixes(renderer: Renderer, dialogues: Sequence[Dialogue]) -> Encoded:
    """Tokenise conversations and find each turn by rendering what comes before it (see :mod:`lit_rlhf.data.masks`)."""
    turns = [[] if dialogue.all_tokens else dialogue.turns() for dialogue in dialogues]
    flat = [(dialogue.messages, n) for dialogue, own in zip(dialogues, turns, strict=True) for n in own]
    before = iter(renderer.strings([messages[:n] for messages, n in flat], add_generation_prompt=True))
    through = iter(renderer.strings([messages[: n + 1] for messages, n in flat]))
    wholes = renderer.strings([dialogue.messages for dialogue in dialogues])
    samples: list[Sample | RowError] = []
    cuts: dict[int, list[str]] = {}  # of each usable dialogue: prompt, turn, prompt, turn, ...
    for own, whole in zip(turns, wholes, strict=True):
        heads, ends = [next(before) for _ in own], [next(through) for _ in own]
        cut = _cut(whole, heads, ends, renderer.closing_text)
        if isinstance(cut, RowError):
            samples.append(cut)
        else:
            cuts[len(samples)] = cut
            samples.append(Sample([], [], 0))  # in its place below
    encoded = _tokenise_cut(renderer, list(cuts.values()))
    for place, sample in zip(cuts, encoded.samples, strict=True):
        samples[place] = sample
    return Encoded(samples, encoded.num_apart)


def _cut(
    whole: str | RowError, before: Sequence[str | RowError], through: Sequence[str | RowError], closer: str | None
) -> list[str] | RowError:
    """Cut a rendered conversation where each turn begins and where it is closed; what follows the last is left out.

    Args:
        whole: All of it.
        before: Up to each turn, with the generation prompt.
        through: Up to each turn's end.
        closer: The special token that ends a turn, if any.
    """
    if isinstance(whole, RowError):
        return whole
    pieces, done = [], 0
    for head, turn in zip(before, through, strict=True):
        if isinstance(head, RowError) or isinstance(turn, RowError):
            return head if isinstance(head, RowError) else turn  # type: ignore[return-value]
        if not whole.startswith(head) or not turn.startswith(head):
            return NotPrefixError()
        end = _common_length(whole, turn)
        if closer is not None:  # a template may add something to a conversation's end, after the turn is closed
            closed = whole.rfind(closer, len(head), end)
            end = closed + len(closer) if closed >= 0 else len(head)
        if end == len(head) or (closer is None and end < len(turn)):
            return NotPrefixError()
        pieces += [whole[done : len(head)], whole[len(head) : end]]
        done = end
    return pieces or [whole]


def _common_length(one: str, other: str) -> int:
    if one.startswith(other):
        return len(other)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


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
            samples.append(all_of(whole))
            continue
        mask = [False] * len(whole)
        for start, end in zip(ends[::2], ends[1::2], strict=True):  # counted from the right: a BOS may be gone
            start, end = start + len(whole), end + len(whole)
            mask[start:end] = [True] * (end - start)
        samples.append(Sample(whole, mask, ends[0] + len(whole)))
    return Encoded(samples, len(apart))
