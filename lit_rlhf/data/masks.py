"""Which tokens count: found by the template's own markers, else by rendering the conversation bit by bit.

A mask that is off by a few tokens trains without an error and teaches nonsense. So where a turn begins is never
guessed: the conversation up to the turn, with the generation prompt, must be a prefix of the whole. Its tokens are a
prefix too, so that a turn is learned behind exactly what the model is given when it generates.
"""

from collections.abc import Sequence

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.dialogue import Dialogue, Encoded, NotPrefixError, all_of
from lit_rlhf.data.prefixes import by_prefixes
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Sample


def encode_dialogues(renderer: Renderer, dialogues: Sequence[Dialogue]) -> Encoded:
    """Tokenise conversations and mark the assistant's turns, each with the token that stops it.

    Args:
        renderer: Of the policy's tokenizer.
        dialogues: Each with an assistant's message from ``first`` on, and one of another role before it.
    """
    if not renderer.has_markers:
        return by_prefixes(renderer, dialogues)
    samples = _by_markers(renderer, dialogues)
    again = [place for place, sample in enumerate(samples) if isinstance(sample, NotPrefixError)]
    rest = by_prefixes(renderer, [dialogues[place] for place in again])
    for place, sample in zip(again, rest.samples, strict=True):
        samples[place] = sample
    return Encoded(samples, rest.num_apart)


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
        samples.append(Sample(ids, [place >= max(num_prompt, 1) for place in range(len(ids))], num_prompt))
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


def _by_markers(renderer: Renderer, dialogues: Sequence[Dialogue]) -> list[Sample | RowError]:
    wholes = renderer.marked([dialogue.messages for dialogue in dialogues])
    heads = renderer.prompts([dialogue.messages[: dialogue.turns()[0]] for dialogue in dialogues])
    samples: list[Sample | RowError] = []
    for dialogue, whole, head in zip(dialogues, wholes, heads, strict=True):
        if isinstance(whole, RowError) or isinstance(head, RowError):
            samples.append(whole if isinstance(whole, RowError) else head)  # type: ignore[arg-type]
            continue
        ids, mask = whole
        if dialogue.all_tokens:
            samples.append(all_of(ids))
        elif ids[: len(head)] != head:
            samples.append(NotPrefixError())
        else:
            mask = [counts and place >= len(head) for place, counts in enumerate(mask)]
            for place in range(len(head), len(ids)):  # some templates leave the closing token outside their markers
                if ids[place] == renderer.turn_closer and mask[place - 1]:
                    mask[place] = True
            samples.append(_trimmed(ids, mask, len(head)))
    return samples


def _trimmed(ids: list[int], mask: list[bool], num_prompt: int) -> Sample:
    """Leave out what follows the last token that counts: it is never trained on, and nothing is conditioned on it."""
    end = len(ids)
    while end > num_prompt and not mask[end - 1]:
        end -= 1
    return Sample(ids[:end], mask[:end], num_prompt)
