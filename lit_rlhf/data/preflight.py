"""What to look at before the first update: a wrong mask or a stop token that is never taught costs a whole run."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from rich.text import Text

from lit_rlhf.data.offline import OfflineData
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.tally import Tally
from lit_rlhf_callbacks.errors import UserError

_LOOKED_AT = 1000  # examples, for their stop tokens
OFTEN = 0.1  # a share of samples above which something is a rule, not an accident


class Preflight(NamedTuple):
    """What was found."""

    facts: dict[str, str]
    """What is so, by name, for a table."""
    warnings: list[str]
    """One line each: what will probably go wrong, and what to set."""
    refusals: list[str]
    """One line each: what would train on nothing."""


def preflight(data: OfflineData, eos_ids: Sequence[int]) -> Preflight:
    """Check tokenised data against the model that is to learn from it.

    Args:
        data: Set up and tokenised.
        eos_ids: Tokens that end a completion when the model generates: the tokenizer's, and those of
            ``generation_config.eos_token_id``.

    Returns:
        What was found; nothing is printed.
    """
    tally, renderer = data.tallies["train"], data.renderer
    stepwise = data.step_separator_or_none() is not None
    facts = {
        "rows": f"{tally.num_rows} read, {tally.num_dropped} dropped, {tally.num_examples} examples",
        "tokens per sequence": f"{tally.lengths} (at most {tally.max_length})",
        "supervised tokens per sequence": str(tally.supervised),
        "prompt begins the whole": f"in {tally.num_rows - tally.num_not_prefix} of {tally.num_rows} rows",
        "prompts cut from the left": f"{tally.num_prompts_cut} of {tally.num_examples} examples",
        "completions cut at their end": f"{tally.num_completions_cut} of {tally.num_samples} sequences",
        **_token_facts(data, renderer, eos_ids, [] if stepwise else trained_stops(data)),
    }
    warnings = [*_mask_warnings(tally), *([] if stepwise else _stop_warnings(tally))]
    if not tally.num_bos_first and renderer.adds_bos:
        name = renderer.tokenizer.bos_token
        warnings.append(f"data: the tokenizer puts '{name}' before plain text, but the chat template begins without it")
    refusals = []
    if tally.supervised.largest == 0:
        refusals.append("data: no token counts in any sequence, so nothing would be learned; change data.mask")
    return Preflight(facts, warnings, refusals)


def trained_stops(data: OfflineData) -> list[int]:
    """Find the stop tokens that completions end with and that count, the most frequent first."""
    stops = {data.renderer.eos_id, data.renderer.turn_closer}
    ends = Counter(
        int(sample.ids[-1])
        for example in data.train_examples[:_LOOKED_AT]
        for sample in example.samples
        if sample.mask[-1]
    )
    return [token for token, _ in ends.most_common() if token in stops]


def announce(found: Preflight, data: OfflineData) -> None:
    """Say on the first rank what was found, and show one sequence as the model will see it.

    Raises:
        UserError: If nothing would be learned.
    """
    if found.refusals:
        raise UserError(found.refusals[0])
    for warning in found.warnings:
        rank_zero_warn(warning)
    sample = data.train_examples[0].samples[0]
    rank_zero_info(f"data: the first sequence, what counts in brackets: {show_sample(sample, data.renderer).plain}")


def show_example(example: Example, renderer: Renderer) -> list[Text]:
    """Spell out each sample of an example (see :func:`show_sample`)."""
    return [show_sample(sample, renderer) for sample in example.samples]


def show_sample(sample: Sample, renderer: Renderer, max_tokens: int = 400) -> Text:
    """Spell out a sample: what counts green and in brackets, special tokens bold, white space visible.

    Args:
        sample: What to show.
        renderer: Of its tokenizer.
        max_tokens: Of a longer one, the middle is left out.
    """
    text = Text()
    length = len(sample)
    hidden = range(max_tokens // 2, length - max_tokens // 2) if length > max_tokens else range(0)
    for start, end in _runs(sample, renderer, hidden):
        counts, special = bool(sample.mask[start]), int(sample.ids[start]) in renderer.special_ids
        words = str(renderer.tokenizer.decode([int(token) for token in sample.ids[start:end]]))
        words = words.replace("\n", "⏎\n" if not special else "⏎")
        if start in hidden:
            words, counts, special = f" … {len(hidden)} tokens … ", False, False
        if counts and not (start and sample.mask[start - 1]):
            text.append("⟦", "green")
        text.append(words, f"{'green' if counts else 'dim'}{' bold' if special else ''}")
        if counts and not (end < length and sample.mask[end]):
            text.append("⟧", "green")
    return text


def _runs(sample: Sample, renderer: Renderer, hidden: range) -> list[tuple[int, int]]:
    """Cut a sample where it must be decoded apart: a character may be several tokens, so not at every token."""
    kinds = [
        (bool(counts), int(token) in renderer.special_ids, place in hidden)
        for place, (token, counts) in enumerate(zip(sample.ids, sample.mask, strict=True))
    ]
    kinds = [(False, False, True) if place in hidden else kind for place, kind in enumerate(kinds)]
    starts = [place for place in range(len(kinds)) if place == 0 or kinds[place] != kinds[place - 1]]
    return list(zip(starts, [*starts[1:], len(kinds)], strict=True))


def _token_facts(data: OfflineData, renderer: Renderer, eos_ids: Sequence[int], stops: Sequence[int]) -> dict[str, str]:
    tokenizer, tally = renderer.tokenizer, data.tallies["train"]
    named = [_named(renderer, token, eos_ids) for token in stops]
    facts = {"chat template": "none; rows are plain text", "stop token": ", ".join(named) or "none is taught"}
    if tokenizer.chat_template is not None:
        source = f"of {data.chat_template_source}" if data.chat_template_source else "the model's own"
        masks = "it marks what the assistant generates" if renderer.has_markers else "masks by rendering prefixes"
        facts["chat template"] = f"{source}; {masks}"
    first = f"{tokenizer.bos_token} first, once, in {tally.num_bos_first} of {tally.num_samples} sequences"
    return {**facts, "BOS": "the tokenizer has none" if renderer.bos_id is None else first}


def _named(renderer: Renderer, token: int, eos_ids: Sequence[int]) -> str:
    name = renderer.tokenizer.convert_ids_to_tokens(token)
    return f"{name} ({'ends generation' if token in eos_ids else 'the run adds it to what ends generation'})"


def _mask_warnings(tally: Tally) -> list[str]:
    warnings = []
    if tally.num_samples and tally.num_unmasked == tally.num_samples:
        warnings.append(
            "data: every token of every sequence counts, prompts too; if the prompts are not to be learned, set "
            "data.mask to assistant_only or completion_only"
        )
    if tally.num_inner_stops:
        warnings.append(
            f"data: {tally.num_inner_stops} of {tally.num_samples} sequences have a stop token inside a completion: "
            "their text spells it out, and the model would learn to stop there; remove it from the text"
        )
    return warnings


def _stop_warnings(tally: Tally) -> list[str]:
    warnings = []
    if tally.num_unstopped > OFTEN * tally.num_samples:
        warnings.append(
            f"data: {tally.num_unstopped} of {tally.num_samples} sequences teach no stop token, so the model will not "
            "learn to stop; use a chat template that closes the assistant's turn (data.chat_template_source)"
        )
    if tally.num_completions_cut > OFTEN * tally.num_samples:
        warnings.append(
            f"data: {tally.num_completions_cut} of {tally.num_samples} completions are cut at {tally.max_length} "
            "tokens and teach no stop; raise data.max_length"
        )
    return warnings
