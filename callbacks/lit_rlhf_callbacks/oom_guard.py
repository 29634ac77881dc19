"""A training step that survives running out of memory, or says which limit would have saved it."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.oom import MemoryLimit, unless_out_of_memory
from lit_rlhf_callbacks.oom_stop import save_for_later
from lit_rlhf_callbacks.parts import Parts, WeightFn, cut_rows, loss_of, shape_of
from lit_rlhf_callbacks.rng_state import get_rng_state, set_rng_state
from lit_rlhf_callbacks.splitting import Splitting
from lit_rlhf_callbacks.undisturbed import Call, logging_into, remember, replace


@dataclass(kw_only=True)
class Step:
    """One micro-batch on its way through forward and backward."""

    args: tuple[Any, ...]
    rng: dict[str, Any]
    num_rows: int
    length: int
    undo: Callable[[], None]
    num_parts: int = 1
    put_back: Callable[[], None] = field(default=lambda: None)

    @property
    def tokens(self) -> int:
        """Padded tokens of the batch."""
        return self.num_rows * self.length

    @property
    def part_tokens(self) -> int:
        """Padded tokens of its largest part."""
        return -(-self.num_rows // self.num_parts) * self.length


class OomGuard:
    """Stands between Lightning and a module's ``training_step``, and around the strategy's ``backward``.

    Args:
        trainer: the trainer, set up.
        pl_module: the module; its ``training_step`` is replaced until `remove`.
        limit: what is known of the memory, and learned.
        weight_fn: from a batch to what its mean loss is divided by; None counts supervised labels.
    """

    def __init__(
        self, trainer: Trainer, pl_module: LightningModule, limit: MemoryLimit, weight_fn: WeightFn | None
    ) -> None:
        self.trainer, self.pl_module, self.limit = trainer, pl_module, limit
        self.step_fn, self.backward_fn = pl_module.training_step, trainer.strategy.backward
        self.parts = Parts(trainer, pl_module, self.step_fn)
        self.splitting = Splitting(trainer, pl_module, self.parts, weight_fn)
        self.step: Step | None = None
        self.batch_idx = 0
        self.is_dry_run = False
        self.is_stopping = False
        self.takes_batch_idx = len(inspect.signature(self.step_fn).parameters) > 1

        def training_step(*args: Any) -> Any:
            return self._training_step(*args)

        training_step.__wrapped__ = self.step_fn  # type: ignore[attr-defined]  # Lightning looks at its parameters
        self._undo = [
            replace(pl_module, "training_step", training_step),
            replace(trainer.strategy, "backward", self.backward),
        ]

    def remove(self) -> None:
        """Give module and strategy their own methods back."""
        for put_back in self._undo:
            put_back()

    # -- forward ------------------------------------------------------------------------------------------------------

    def _training_step(self, *args: Any) -> Any:
        num_rows, length = shape_of(args[0]) or (0, 0)
        rng = get_rng_state(self.pl_module.device)
        kept = (copy.copy(args[0]), *args[1:])  # a step may take keys out of its batch
        step = self.step = Step(
            args=kept, rng=rng, num_rows=num_rows, length=length, undo=remember(self.pl_module, with_own=False)
        )
        if self.limit.allows(step.tokens) or self._why_whole(step):
            calls: list[Call] = []
            output, fits = unless_out_of_memory(lambda: self._whole(args, calls))
            if fits:
                self._log(calls)
                return output
            step.undo()
            self._learn(step, "forward")
        output, calls = self._in_parts(step)
        self._log(calls)
        return output

    def _whole(self, args: tuple[Any, ...], calls: list[Call]) -> Any:
        with logging_into(self.pl_module, calls):  # shown when it is known that the step is not made again
            return self.step_fn(*args)

    def _log(self, calls: list[Call]) -> None:
        for args, kwargs in calls:
            self.pl_module.log(*args, **kwargs)

    def _in_parts(self, step: Step) -> tuple[Any, list[Call]]:
        assert self.limit.max_tokens is not None
        while True:
            step.num_parts = -(-step.num_rows // max(self.limit.max_tokens // step.length, 1))
            parts = cut_rows(step.args[0], step.num_parts) or []
            weights = [self.splitting.weight(part) for part in parts]
            set_rng_state(step.rng, self.pl_module.device)
            done, fits = unless_out_of_memory(lambda p=parts, w=weights: self.parts.compute(p, w, *step.args[1:]))  # type: ignore[misc]
            if done is not None and fits:
                step.put_back = remember(self.pl_module)  # the backward computes the parts again
                return done
            step.undo()
            self._learn(step, "forward")

    # -- backward -----------------------------------------------------------------------------------------------------

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the strategy's ``backward``; out of memory there, drop its gradients and compute the batch again."""

        def run(loss: Tensor) -> Any:
            return self.backward_fn(loss, *args, **kwargs)

        return self.backward_of(closure_loss, run, self.trainer.accumulate_grad_batches)

    def backward_of(self, loss: Tensor, run: Callable[[Tensor], Any], divisor: int) -> Any:
        """Run a backward of the step before, with a new loss over ``divisor`` if that has to be computed."""
        step = self.step
        assert step is not None
        result, fits = unless_out_of_memory(lambda: run(loss))
        while not fits:
            loss.detach_()  # Lightning holds it, and with it every activation
            for parameter in self.pl_module.parameters():
                parameter.grad = None
            step.put_back()
            self._learn(step, "backward")
            with self.trainer.precision_plugin.train_step_context(), torch.enable_grad():
                before = remember(self.pl_module)
                output, _ = self._in_parts(step)
            step.put_back = before  # what the first forward has left behind is what one forward leaves behind
            loss = loss_of(output) / divisor
            del output
            result, fits = unless_out_of_memory(lambda retried=loss: run(retried))  # type: ignore[misc]
        step.put_back()
        if step.num_parts == 1:
            self.limit.note_fit(step.tokens)
        return result

    # -- what can be done ---------------------------------------------------------------------------------------------

    def _learn(self, step: Step, place: str) -> None:
        """Lower the limit after a failure, or stop the run where parts would not help."""
        failed = step.part_tokens
        in_window = self._why_no_recompute() if place == "backward" else None
        reason = self._why_whole(step) or in_window
        if failed:
            self.limit.note_failure(failed)
        if reason is not None:
            self._stop(step, place, reason)
        limit = self.limit.max_tokens
        rank_zero_info(
            f"LengthBucketing: {failed} padded tokens ran out of memory in the {place}; from now on batches above "
            f"{limit} come in parts. Faster, in a new run: LengthBucketing(max_tokens={limit})."
        )

    def _why_whole(self, step: Step) -> str | None:
        return _ONE_ROW if step.num_rows in (1, step.num_parts) else self.splitting.why_not(*step.args)

    def _why_no_recompute(self) -> str | None:
        if self.is_dry_run:
            return None
        if self.trainer.world_size > 1:
            return "the other ranks wait for this one's gradients"
        if self.num_done:
            window = self.trainer.accumulate_grad_batches
            return f"it was micro-batch {self.num_done + 1} of {window}, and mixed its gradients with those before"
        return None

    @property
    def num_done(self) -> int:
        """Micro-batches of the open window before this one, as Lightning counts them."""
        return self.batch_idx % self.trainer.accumulate_grad_batches

    def _stop(self, step: Step, place: str, reason: str) -> None:
        what = f" of {step.num_rows} rows x {step.length} = {step.tokens} padded tokens" if step.tokens else ""
        advice = f"set LengthBucketing(max_tokens={self.limit.max_tokens or 'a smaller number'})"
        if reason == _ONE_ROW:
            advice = f"cut rows below {step.length} tokens, or make room (gradient checkpointing, a smaller model)"
        self.is_stopping = True
        when = "in a dry run before the first update" if self.is_dry_run else save_for_later(self.trainer)
        raise UserError(f"LengthBucketing: out of memory in the {place} of a batch{what}, {when}; {reason}; {advice}.")


_ONE_ROW = "a single row does not fit"
