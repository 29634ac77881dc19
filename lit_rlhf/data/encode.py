"""From records to examples: rendered, masked, cut to length, and whatever would teach nothing left out and counted."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf.data.dialogue import Dialogue, Encoded, NotPrefixError
from lit_rlhf.data.formats import Record
from lit_rlhf.data.masks import encode_dialogues, encode_texts, start_of_last_turn
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.tally import Spread, Tally
from lit_rlhf.data.truncation import truncate

NumberedRecord: TypeAlias = tuple[int, Record]
OnRefused: TypeAlias = Callable[[int, RowError], None]
CHUNK = 1000  # rows tokenised at once


class Encoder:
    """Turns the records of one part of the data into examples, and keeps count.

    Args:
        renderer: Of the policy's tokenizer.
        tally: Counts what happens; complete once :meth:`examples` is through.
        on_refused: Called with the row's number for a row that the chat template refuses.
        step_separator: Stands after each step of a stepwise record.
    """

    def __init__(
        self, renderer: Renderer, tally: Tally, on_refused: OnRefused, step_separator: str | None = None
    ) -> None:
        self.renderer, self.tally, self.on_refused = renderer, tally, on_refused
        self.step_separator = step_separator
        self.lengths: list[int] = []
        self.supervised: list[int] = []

    def examples(self, records: Sequence[NumberedRecord]) -> Iterator[Example]:
        """Tokenise records in batches.

        Yields:
            An example for every record in which something is left to learn.
        """
        double_bos = self.renderer.num_double_bos
        for start in range(0, len(records), CHUNK):
            chunk = records[start : start + CHUNK]
            encoded = self._steps(chunk) if self.step_separator is not None else self._completions(chunk)
            for (row, record), samples in zip(chunk, encoded, strict=True):
                self.tally.num_rows += 1
                example = self._example(row, record, samples)
                if example is not None:
                    yield example
        self.tally.num_double_bos = self.renderer.num_double_bos - double_bos
        self.tally.supervised, self.tally.lengths = Spread.of(self.supervised), Spread.of(self.lengths)

    def _completions(self, chunk: Sequence[NumberedRecord]) -> list[list[Sample | RowError]]:
        """Return each record's samples, one per completion."""
        prompts: list[str] = []
        texts: list[str] = []
        dialogues: list[Dialogue] = []
        for _, record in chunk:
            for completion in record.completions:
                if isinstance(record.prompt, str) and isinstance(completion, str):
                    prompts.append(record.prompt)
                    texts.append(completion)
                else:
                    messages: list[Message] = [*record.prompt, *completion]
                    dialogues.append(Dialogue(messages, len(record.prompt), record.all_tokens))
        of_texts = encode_texts(self.renderer, prompts, texts)
        of_dialogues = encode_dialogues(self.renderer, dialogues) if dialogues else Encoded([], 0)
        self.tally.num_apart += of_texts.num_apart + of_dialogues.num_apart
        plain, rendered = iter(of_texts.samples), iter(of_dialogues.samples)
        return [
            [next(plain if isinstance(completion, str) else rendered) for completion in record.completions]
            for _, record in chunk
        ]

    def _steps(self, chunk: Sequence[NumberedRecord]) -> list[list[Sample | RowError]]:
        """Return one sample per record; its mask marks each step's last token."""
        texts = self.renderer.texts([record.prompt for _, record in chunk if isinstance(record.prompt, str)])
        conversations = [record.prompt for _, record in chunk if not isinstance(record.prompt, str)]
        plain = iter(texts)
        rendered = iter(self.renderer.prompts(conversations) if conversations else [])
        steps = iter(
            self.renderer.pieces([f"{step}{self.step_separator}" for _, record in chunk for step in record.completions])
        )
        result: list[list[Sample | RowError]] = []
        for _, record in chunk:
            head = next(plain) if isinstance(record.prompt, str) else next(rendered)
            tails = [next(steps) for _ in record.completions]
            if isinstance(head, RowError):
                result.append([head])
                continue
            ids = head + [token for tail in tails for token in tail]
            mask = [False] * len(head)
            for tail in tails:
                mask += [False] * (len(tail) - 1) + [True]
            result.append([Sample(ids, mask, len(head))])
        return result

    def _example(self, row: int, record: Record, encoded: Sequence[Sample | RowError]) -> Example | None:
        tally = self.tally
        samples = []
        for sample in encoded:
            if isinstance(sample, NotPrefixError):
                tally.num_not_prefix += 1
                return None
            if isinstance(sample, RowError):
                self.on_refused(row, sample)
                tally.num_refused += 1
                return None
            samples.append(sample)
        stepwise = self.step_separator is not None
        starts = [sample.num_prompt if stepwise else start_of_last_turn(sample.mask) for sample in samples]
        cut = truncate(samples, starts, tally.max_length, self.renderer.bos_id)
        if not all(any(sample.mask) for sample in cut.samples):
            tally.num_all_masked += 1
            return None
        ids = [tuple(sample.ids) for sample in cut.samples]
        if len(set(ids)) < len(ids):
            tally.num_identical += 1
            return None
        tally.num_prompts_cut += cut.prompt_cut
        tally.num_completions_cut += cut.num_completions_cut
        self._measure(cut.samples, cut.num_completions_cut, stepwise)
        positions = [place for place, counts in enumerate(cut.samples[0].mask) if counts] if stepwise else []
        return Example(row, cut.samples, record.label, list(zip(positions, record.step_labels, strict=False)))

    def _measure(self, samples: Sequence[Sample], num_cut: int, stepwise: bool) -> None:
        tally = self.tally
        stops = {self.renderer.eos_id, self.renderer.turn_closer}
        tally.num_examples += 1
        tally.num_samples += len(samples)
        for sample in samples:
            num_counted = sum(sample.mask)
            self.lengths.append(len(sample))
            self.supervised.append(num_counted)
            tally.num_bos_first += sample.ids[0] == self.renderer.bos_id
            tally.num_unmasked += sample.num_prompt == 0
            if stepwise:
                continue
            ends = [place for place, token in enumerate(sample.ids) if token in stops and sample.mask[place]]
            tally.num_unstopped += not num_cut and (not ends or ends[-1] != len(sample) - 1)
            tally.num_inner_stops += any(place + 1 < len(sample) and sample.mask[place + 1] for place in ends)
