"""Many examples in a few flat arrays: small in memory, and memory-mapped when they come from the cache."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from lit_rlhf.data.samples import Example, Sample, Sizes

Array = np.ndarray[Any, np.dtype[Any]]

_COLUMNS = {
    "ids": np.int32,
    "mask": np.bool_,
    "sample_ends": np.int64,  # [S] where each sample's tokens end
    "num_prompt": np.int32,  # [S]
    "example_ends": np.int64,  # [N] where each example's samples end
    "row": np.int64,  # [N]
    "label": np.float32,  # [N] NaN: none
    "step_ends": np.int64,  # [N] where each example's steps end
    "step_position": np.int32,
    "step_label": np.float32,
}


class ExampleTable(Sequence[Example]):
    """N examples with S samples.

    Args:
        columns: The arrays named in this module, in memory or mapped from files.
    """

    def __init__(self, columns: dict[str, Array]) -> None:
        self.columns = columns

    @classmethod
    def build(cls, examples: Iterable[Example]) -> "ExampleTable":
        """Lay examples out, one after the other."""
        ids: list[Array] = []
        masks: list[Array] = []
        numbers: dict[str, list[float]] = {name: [] for name in _COLUMNS if name not in ("ids", "mask")}
        num_ids = 0
        for example in examples:
            for sample in example.samples:
                ids.append(np.asarray(sample.ids, np.int32))
                masks.append(np.asarray(sample.mask, np.bool_))
                num_ids += len(sample)
                numbers["sample_ends"].append(num_ids)
                numbers["num_prompt"].append(sample.num_prompt)
            numbers["row"].append(example.row)
            numbers["label"].append(np.nan if example.label is None else example.label)
            numbers["step_position"] += [position for position, _ in example.steps]
            numbers["step_label"] += [label for _, label in example.steps]
            numbers["example_ends"].append(len(ids))
            numbers["step_ends"].append(len(numbers["step_label"]))
        columns: dict[str, Array] = {name: np.asarray(values, _COLUMNS[name]) for name, values in numbers.items()}
        columns["ids"] = np.concatenate([np.zeros(0, np.int32), *ids])
        columns["mask"] = np.concatenate([np.zeros(0, np.bool_), *masks])
        return cls(columns)

    def __len__(self) -> int:
        return len(self.columns["row"])

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """Read examples; tokens are views, nothing is copied."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        label = float(self.columns["label"][index])
        first_step, last_step = self._span("step_ends", index)
        steps = range(first_step, last_step)
        return Example(
            row=int(self.columns["row"][index]),
            samples=[self._sample(number) for number in range(*self._span("example_ends", index))],
            label=None if np.isnan(label) else label,
            steps=[(int(self.columns["step_position"][n]), float(self.columns["step_label"][n])) for n in steps],
        )

    @cached_property
    def sizes(self) -> Sizes:
        """What a plan of windows needs to know."""
        if not len(self):
            return Sizes([], [], 1)
        sample_starts = np.concatenate([[0], self.columns["sample_ends"][:-1]])
        example_starts = np.concatenate([[0], self.columns["example_ends"][:-1]])
        lengths = self.columns["sample_ends"] - sample_starts
        counted = np.add.reduceat(self.columns["mask"].astype(np.int64), sample_starts)
        return Sizes(
            lengths=np.maximum.reduceat(lengths, example_starts).tolist(),
            num_tokens=np.add.reduceat(counted, example_starts).tolist(),
            samples_per_example=int((self.columns["example_ends"] - example_starts).max()),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every token, mask and label: the same for the same examples, whatever they were read from."""
        digest = hashlib.blake2b(digest_size=16)
        for name in sorted(self.columns):
            digest.update(np.ascontiguousarray(self.columns[name]).data)
        return digest.hexdigest()

    def prompts(self) -> Iterator[bytes]:
        """Yield the prompt of each example that has one, as the bytes of its token ids."""
        for index in range(len(self)):
            number = self._span("example_ends", index)[0]
            start, length = self._span("sample_ends", number)[0], int(self.columns["num_prompt"][number])
            if length > 1:  # a lone BOS conditions, but asks nothing
                yield self.columns["ids"][start : start + length].tobytes()

    def save(self, folder: Path) -> None:
        """Write one ``.npy`` file per array."""
        for name, values in self.columns.items():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "ExampleTable":
        """Map the arrays of a saved table into memory; pages are read when they are used."""
        # mode c: a write would stay private, and torch does not warn of read-only memory
        return cls({name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in _COLUMNS})

    def _span(self, ends: str, index: int) -> tuple[int, int]:
        return int(self.columns[ends][index - 1]) if index else 0, int(self.columns[ends][index])

    def _sample(self, number: int) -> Sample:
        start, end = self._span("sample_ends", number)
        ids, mask = self.columns["ids"][start:end], self.columns["mask"][start:end]
        return Sample(ids, mask, int(self.columns["num_prompt"][number]))  # type: ignore[arg-type]
