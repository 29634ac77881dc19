"""One batch in several forwards with the gradient of one: parts of its rows, each recomputed in the backward."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lit_rlhf_callbacks.rng_state import get_rng_state, set_rng_state
from lit_rlhf_callbacks.undisturbed import Call, logging_into

WeightFn = Callable[[Any], float]


def shape_of(batch: Any) -> tuple[int, int] | None:
    """Return rows and padded tokens per row: of ``input_ids``, else of the longest tensor; None: no such tensor."""
    tensors = list(batch.values()) if isinstance(batch, Mapping) else [batch]
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if isinstance(ids, Tensor) and ids.ndim > 1:
        return ids.shape[0], ids[0].numel()
    shapes = [tensor.shape for tensor in tensors if isinstance(tensor, Tensor) and tensor.ndim > 1]
    return (shapes[0][0], max(shape[1] for shape in shapes)) if shapes else None


def cut_rows(batch: Any, num_parts: int | None = None) -> list[Any] | None:
    """Cut a dict of tensors along the batch dimension into parts of as equal size as can be.

    Args:
        batch: tensors ``[B, ...]`` and lists of B things are cut; scalars and whatever else are in every part.
        num_parts: at most B; None makes one of each row.

    Returns:
        The parts, of the batch's own class, or None if it is no dict of tensors with one batch dimension.
    """
    shape = shape_of(batch)
    if not isinstance(batch, Mapping) or shape is None:
        return None
    num_rows = shape[0]
    if any(value.shape[0] != num_rows for value in batch.values() if isinstance(value, Tensor) and value.ndim):
        return None
    parts: list[Any] = []
    for rows in torch.arange(num_rows).tensor_split(num_parts or num_rows):
        part: Any = copy.copy(batch)
        for name, value in batch.items():
            is_column = isinstance(value, list) and len(value) == num_rows
            if is_column or (isinstance(value, Tensor) and value.ndim):
                part[name] = value[int(rows[0]) : int(rows[-1]) + 1]
        parts.append(part)
    return parts


def count_labels(batch: Any) -> int | None:
    """Return what a mean over supervised tokens divides by, or None if the batch does not say.

    Args:
        batch: its ``labels`` are ``[B, T]``, -100 where a token is not supervised; the first column predicts nothing.
    """
    labels = batch.get("labels")
    if not isinstance(labels, Tensor) or labels.ndim != 2:
        return None
    return int((labels[:, 1:] != -100).sum())


def loss_of(output: Any) -> Tensor:
    """Return the loss of what ``training_step`` returned."""
    return output["loss"] if isinstance(output, Mapping) else output


class Parts:
    """A ``training_step`` over the parts of a batch.

    Args:
        trainer: the trainer.
        pl_module: the module.
        step: its ``training_step``, bound.
    """

    def __init__(self, trainer: Trainer, pl_module: LightningModule, step: Callable[..., Any]) -> None:
        self.trainer, self.pl_module, self._step = trainer, pl_module, step

    def step(self, part: Any, *rest: Any) -> Any:
        """Call ``training_step`` with a copy of a part, since it may take its keys out, and is called once more."""
        return self._step(copy.copy(part), *rest)

    def compute(self, parts: Sequence[Any], weights: Sequence[float], *rest: Any) -> tuple[Any, list[Call]]:
        """Return what the step returns for the whole batch, and what it logs: means over parts, by weight.

        Only one part's activations are held at a time: each is computed again, with the same random numbers, when the
        backward comes to it. A part without weight adds nothing and is left out.

        Args:
            parts: as `cut_rows` cuts them.
            weights: what each part's own mean loss was divided by.
            rest: the step's other arguments.
        """
        weights = weights if sum(weights) else [1.0] * len(parts)
        outputs, logged = [], []
        for part, weight in zip(parts, weights, strict=True):
            if weight:
                calls: list[Call] = []
                with logging_into(self.pl_module, calls):
                    outputs.append(self._recomputed(part, rest))
                logged.append(calls)
        shares = [weight / sum(weights) for weight in weights if weight]
        return _mean(outputs, shares), _mean_logs(logged, shares)

    def _recomputed(self, part: Any, rest: tuple[Any, ...]) -> Any:
        device = self.pl_module.device
        state = get_rng_state(device)

        @contextmanager
        def as_before() -> Iterator[None]:
            now = get_rng_state(device)
            set_rng_state(state, device)
            try:
                with self.trainer.precision_plugin.train_step_context(), logging_into(self.pl_module, None):
                    yield
            finally:
                set_rng_state(now, device)

        @contextmanager
        def at_first() -> Iterator[None]:
            yield

        return checkpoint(
            self.step,
            part,
            *rest,
            use_reentrant=False,
            preserve_rng_state=False,  # as_before does it, for Python's and NumPy's too
            context_fn=lambda: (at_first(), as_before()),
        )


def _mean(outputs: Sequence[Any], shares: Sequence[float]) -> Any:
    """Join what a step returned: scalars by weight, tensors with rows one after the other, anything else the last."""
    first = outputs[0]
    if isinstance(first, Mapping):
        return {name: _mean([output[name] for output in outputs], shares) for name in first}
    if isinstance(first, Tensor) and first.ndim:
        return torch.cat(list(outputs))
    if isinstance(first, Tensor | float):
        return sum(output * share for output, share in zip(outputs, shares, strict=True))
    return outputs[-1]


def _mean_logs(logged: Sequence[list[Call]], shares: Sequence[float]) -> list[Call]:
    """Turn what the parts logged into one call per name."""
    values: dict[str, list[Any]] = {}
    settings: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
    for calls in logged:
        for args, kwargs in calls:
            named = dict(zip(("name", "value"), args, strict=False)) | kwargs
            name = named.pop("name")
            values.setdefault(name, []).append(named.pop("value"))
            settings[name] = args[2:], {k: v for k, v in named.items() if k != "batch_size"}
    combined = []
    for name, found in values.items():
        rest, kwargs = settings[name]
        value = _mean(found, shares) if len(found) == len(shares) else found[-1]
        combined.append(((name, value, *rest), kwargs))
    return combined
