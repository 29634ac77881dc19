"""Tokenising one part of the data: in memory where that takes seconds, else once and from the cache."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn

from lit_rlhf.data.bad_rows import BadRows, OnBadRow, RowError
from lit_rlhf.data.cache import cache_folder, cache_key, is_large, load_cached, save_cached
from lit_rlhf.data.encode import Encoder, NumberedRecord
from lit_rlhf.data.mixture import Source, source_of
from lit_rlhf.data.progress import track
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.table import ExampleTable
from lit_rlhf.data.tally import Tally
from lit_rlhf_callbacks.errors import UserError

MOST_DROPPED = 0.1  # a larger share of rows that cannot be learned from is a wrong setting, not bad luck


def tokenise_part(
    part: str,
    records: list[NumberedRecord],
    renderer: Renderer,
    *,
    max_length: int,
    step_separator: str | None,
    sources: Sequence[Source],
    on_bad_row: OnBadRow,
    strategy: Strategy | None,
) -> tuple[ExampleTable, Tally]:
    """Turn records into examples and say what was dropped or cut.

    Args:
        part: ``train`` or ``eval``.
        records: With their numbers.
        renderer: Of the policy's tokenizer.
        max_length: Tokens a sample may have.
        step_separator: Stands after each step, for stepwise data.
        sources: Where the records come from.
        on_bad_row: What a row does that the chat template refuses.
        strategy: Of the trainer, if there is one: its other ranks wait for what the first one caches.

    Raises:
        UserError: If a good part of the rows, or all of them, teach nothing.
    """

    def make() -> tuple[ExampleTable, Tally]:
        tally, bad = Tally(name=part, max_length=max_length), {s.name: BadRows(s.name, on_bad_row) for s in sources}

        def refuse(number: int, problem: RowError) -> None:
            source = source_of(number, sources)
            bad[source.name].add(number - source.first, problem)

        encoder = Encoder(renderer, tally, refuse, step_separator)
        table = ExampleTable.build(track(encoder.examples(records), len(records), f"tokenising ({part})"))
        for refused in bad.values():
            refused.say(len(records))
        return table, tally

    if is_large(records):
        settings = {"part": part, "max_length": max_length, "separator": step_separator, "on_bad_row": on_bad_row}
        folder = cache_folder(cache_key(records, renderer.tokenizer, **settings))
        with _first_rank_first(strategy):
            if load_cached(folder) is None:
                save_cached(folder, *make())
        found = load_cached(folder)
        assert found is not None  # it was just written
        table, tally = found
        rank_zero_info(f"data ({part}): tokenised in {folder}")
    else:
        table, tally = make()
    for line in tally.losses():
        rank_zero_warn(line)
    _check_enough(tally)
    return table, tally


@contextmanager
def _first_rank_first(strategy: Strategy | None) -> Iterator[None]:
    """Let the other ranks wait for what the first one writes."""
    is_first = strategy is None or strategy.is_global_zero
    if strategy is not None and not is_first:
        strategy.barrier()
    try:
        yield
    finally:
        if strategy is not None and is_first:
            strategy.barrier()


def _check_enough(tally: Tally) -> None:
    """Refuse data of which a good part teaches nothing."""
    not_prefix = "have prompts that are not the beginning of the whole"
    causes = {
        f"{not_prefix}; the chat template rewrites earlier turns: set data.mask: completion_only, or borrow a template "
        "that keeps them (data.chat_template_source)": tally.num_not_prefix,
        "have no token that counts; raise data.max_length, or change data.mask": tally.num_all_masked,
    }
    for what, count in causes.items():
        if count > MOST_DROPPED * tally.num_rows:
            raise UserError(f"data ({tally.name}): {count} of {tally.num_rows} rows {what}")
    if tally.num_rows and not tally.num_examples:
        raise UserError(f"data ({tally.name}): none of {tally.num_rows} rows is left: {'; '.join(tally.losses())}")
