"""A few stable multiple-choice sets, asked again and again: what a run must not lose."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerStatus
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch.optim import Optimizer

from lit_rlhf_callbacks.append_only import JsonLines
from lit_rlhf_callbacks.errors import RunStoppedError
from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.run_clock import run_clock
from lit_rlhf_callbacks.run_dir import run_dir
from lit_rlhf_callbacks.saved_checkpoints import newest_checkpoint
from lit_rlhf_callbacks.sentinel_result import Result, as_marks, summarise
from lit_rlhf_callbacks.sentinel_scoring import Option, Scorer, encode_item, find_scorer, score_options
from lit_rlhf_callbacks.sentinel_sets import Item, load_sets, spread

MIN_CLIFF = 0.2  # share of the items: a drop below it is no cliff however sure it is


class SentinelEval(Callback):
    """Ask multiple-choice questions before the first update, every few updates and at the end; stop at a cliff.

    An option's score is the log-prob per token that the model gives it after the question: forwards in evaluation mode
    and nothing generated. Changes are from before the first update, on the same items, in standard errors of
    `paired_change`. Each result is a line of ``sentinels.jsonl`` in the run directory, and metrics
    ``sentinel/<set>/accuracy``, ``accuracy_se``, ``margin`` (log-prob per token of the right option over the best wrong
    one, which moves before accuracy does), ``change`` and ``sigma``. Weights, random states and modes are left as they
    were.

    Scores come from the module's ``score(tokens)`` (``callbacks/README.md``) or a Hugging Face model among its
    attributes, with the attribute ``tokenizer``.

    Args:
        sets: Files of JSON lines, each with ``question`` (text, or chat messages), ``options`` and ``answer`` (index,
            letter or text); ``builtin:<name>`` is one of the module's ``sentinel_sets()``. None takes all of those.
        every_n_updates: How often; None measures whenever a checkpoint is written.
        max_items: Of each set at most so many, evenly spread.
        max_drop_sigma: A set that falls by more standard errors than this is warned of, once.
        stop_drop_sigma: One that falls by more than this, and by a fifth of its items, stops the run.

    Example::

        Trainer(callbacks=[SentinelEval(sets=["sentinels/capitals.jsonl"], every_n_updates=50)])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(
        self,
        sets: list[str] | None = None,
        every_n_updates: int | None = 20,
        max_items: int = 100,
        max_drop_sigma: float = 3.0,
        stop_drop_sigma: float = 5.0,
    ) -> None:
        self.sets = sets
        self.every_n_updates = every_n_updates
        self.max_items = max_items
        self.max_drop_sigma = max_drop_sigma
        self.stop_drop_sigma = stop_drop_sigma
        self.file: JsonLines | None = None
        self._items: dict[str, list[Item]] = {}
        self._options: dict[str, list[Option]] = {}
        self._scorer: Scorer | None = None
        self._results: dict[str, Result] = {}
        self._start: dict[str, str] = {}  # which items were right before the first update, as "1101"
        self._warned: list[str] = []
        self._last_step = -1
        self._good_step = -1
        self._good_until = 0.0  # until then the weights were those of the last evaluation without a drop

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Read the sets, so that a wrong one fails before anything is trained."""
        if stage == "fit":
            self.file = JsonLines(run_dir(trainer) / "sentinels.jsonl")
            found = load_sets(self.sets, pl_module)
            self._items = {name: spread(items, self.max_items) for name, items in found.items() if items}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the start, or go on after a resume."""
        run_clock(trainer).start()
        if trainer.is_global_zero and self.file is not None:
            self.file.discard_after(trainer.global_step)
        scorer = find_scorer(trainer, pl_module)
        if isinstance(scorer, str) or not self._items:
            missing = scorer if isinstance(scorer, str) else "no sets are given, and the module has no sentinel_sets()"
            rank_zero_warn(f"SentinelEval could not be checked: {missing}; see callbacks/README.md.")
            return
        self._scorer = scorer
        self._options = {
            name: [option for item in items for option in encode_item(scorer.tokenizer, item)]
            for name, items in self._items.items()
        }
        changed = [name for name, items in self._items.items() if len(self._start.get(name, "")) != len(items)]
        if trainer.global_step > 0 and changed:
            rank_zero_warn(f"SentinelEval: {', '.join(changed)} not measured at the start of the run, so from here on")
        if changed:
            self._start = {name: marks for name, marks in self._start.items() if name not in changed}
            self._measure(trainer, pl_module)
            self._say_start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure after every n-th update and after the last one, once."""
        step = trainer.global_step
        is_due = self.every_n_updates is not None and step % self.every_n_updates == 0
        if (is_due or step == trainer.max_steps) and step > self._last_step:
            metrics = self._measure(trainer, pl_module)
            if isinstance(outputs, dict):
                outputs.setdefault("metrics", {}).update(metrics)
            for name, value in metrics.items():
                pl_module.log(name, value, batch_size=1)
            self._stop_at_a_cliff(trainer)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Note when weights that were measured to be good change: checkpoints up to now hold them."""
        if trainer.global_step == self._good_step:
            self._good_until = time.time()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Measure what is being saved, where that is asked for; weights past a cliff are not saved."""
        run_clock(trainer).save(checkpoint)
        is_running = trainer.training and trainer.state.status == TrainerStatus.RUNNING
        if self.every_n_updates is None and is_running and trainer.global_step > self._last_step:
            self._send(trainer, self._measure(trainer, pl_module))
            self._stop_at_a_cliff(trainer)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the saved hours."""
        run_clock(trainer).load(checkpoint)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the end, if the last update was not known to be the last."""
        if trainer.global_step > self._last_step:
            self._send(trainer, self._measure(trainer, pl_module))
            self._stop_at_a_cliff(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return what was right at the start; the start policy itself is gone later."""
        return {
            "start": self._start,
            "warned": self._warned,
            "last_step": self._last_step,
            "good_step": self._good_step,
            "good_until": self._good_until,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._start, self._warned = state_dict["start"], state_dict["warned"]
        self._last_step, self._good_step = state_dict["last_step"], state_dict["good_step"]
        self._good_until = state_dict["good_until"]

    def _measure(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, float]:
        """Measure all sets in one pass, on all ranks; every rank gets the same results."""
        self._last_step = trainer.global_step
        if self._scorer is None:
            return {}
        options = [option for own in self._options.values() for option in own]
        with observing(trainer, pl_module):
            scores = score_options(self._scorer, options, pl_module.device, trainer.global_rank, trainer.world_size)
        all_scores = trainer.strategy.all_gather(scores).view(-1, len(options)).sum(0).tolist()
        self._results = {}
        for name, items in self._items.items():
            own, all_scores = all_scores[: len(self._options[name])], all_scores[len(self._options[name]) :]
            self._results[name] = result = summarise(items, own, self._start.get(name))
            self._start.setdefault(name, as_marks(result.correct))
        self._record(trainer)
        self._warn()
        return {key: value for name, result in self._results.items() for key, value in result.metrics(name).items()}

    def _record(self, trainer: Trainer) -> None:
        hours, _ = run_clock(trainer).read()
        if trainer.is_global_zero and self.file is not None:
            for name, result in self._results.items():
                self.file.append(result.record(name, trainer.global_step, hours))

    def _send(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Hand a result to the loggers where there is no batch whose metrics it could join."""
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)

    def _say_start(self) -> None:
        said = [result.describe_start(name, self._items[name]) for name, result in self._results.items()]
        rank_zero_info(f"SentinelEval at the start: {'; '.join(said)}")

    def _warn(self) -> None:
        fallen = [name for name, result in self._results.items() if result.change.sigma < -self.max_drop_sigma]
        for name in fallen:
            if name not in self._warned:
                self._warned.append(name)
                rank_zero_warn(
                    f"SentinelEval: {self._results[name].describe_change(name)} since the start, by update "
                    f"{self._last_step}: the model forgets what this run should not touch; lower the learning rate or "
                    "raise beta (the weight of the KL from the reference)"
                )
        if not fallen:
            self._good_step, self._good_until = self._last_step, time.time()

    def _stop_at_a_cliff(self, trainer: Trainer) -> None:
        """Raise on every rank, since all hold the same results."""
        cliffs = [
            result.describe_change(name)
            for name, result in self._results.items()
            if result.change.sigma < -self.stop_drop_sigma and result.change.change <= -MIN_CLIFF
        ]
        if not cliffs:
            return
        good = newest_checkpoint(trainer, until=self._good_until)
        advice = f"go back to {good} and" if good else "no checkpoint is left from then: start again and"
        raise RunStoppedError(
            f"SentinelEval: this run is broken, not its recipe weak: by update {self._last_step} {'; '.join(cliffs)}; "
            f"at update {self._good_step} nothing was lost yet; {advice} lower the learning rate, or find what changed "
            "in between"
        )
