"""Names what is wrong with a run while it trains: exact checks, then rules over its metrics."""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch.optim import Optimizer

from lit_rlhf_callbacks.checks.at_start import device_checks
from lit_rlhf_callbacks.checks.schedule import ExactChecks
from lit_rlhf_callbacks.doctor_facts import gather_facts
from lit_rlhf_callbacks.doctor_policy import Action, as_actions
from lit_rlhf_callbacks.doctor_report import Report
from lit_rlhf_callbacks.finding_hook import FindingHook
from lit_rlhf_callbacks.open_row import STEP, OpenRow, is_empty
from lit_rlhf_callbacks.run_clock import run_clock
from lit_rlhf_callbacks.run_dir import run_dir
from lit_rlhf_callbacks.saved_steps import SavedSteps
from lit_rlhf_callbacks.stop_reason import note_stop
from lit_rlhf_callbacks.symptoms import KINDS, RULES
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import CheckResult, Finding
from lit_rlhf_callbacks.window_samples import WindowSamples


class RunDoctor(Callback):
    """Follow a run's metrics, say in a few lines what goes wrong, since when and why, and stop it where asked to.

    Exact checks are made at the start, after the first three updates and after every hundredth
    (`lit_rlhf_callbacks.checks`); rules then read each update's row, the one that ``metrics.csv`` has, when the next
    batch begins (`lit_rlhf_callbacks.symptoms`). Rank 0 writes ``findings.jsonl``, a line per change of state, and
    ``checks.jsonl``, which begins with the facts, into the run directory. Nothing here raises into training.

    A stop ends training after the update that is under way: `stopped_by` holds the finding, ``trainer.should_stop`` is
    set, and ``python -m lit_rlhf fit`` ends with status 3. It takes a critical finding, so an exact one or one that
    lasts ten rows. With several ranks, one that decides so is enough, and all end at the same update.

    Args:
        on_finding: ``warn`` prints; ``stop`` also saves a checkpoint and ends training when a finding is critical;
            a dict says it per kind, ``{"entropy_collapse": "stop"}``, with ``ignore`` for kinds not to hear of.
        hook: A command that gets each finding as JSON on its standard input, or an ``https://`` address to post it to.

    Example::

        Trainer(callbacks=[PolicyMonitor(), RunDoctor(on_finding="stop"), RunFiles()])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self, on_finding: Action | dict[str, Action] = "warn", hook: str | None = None) -> None:
        self.actions = as_actions(on_finding)
        self.hook = FindingHook(hook) if hook is not None else None
        self.diagnosis: Diagnosis | None = None
        self.stopped_by: Finding | None = None
        self.report: Report | None = None
        self._open = OpenRow()
        self._step = 0
        self._is_due = False  # whether the open row has not been read yet
        self._samples = WindowSamples()
        self._saved = SavedSteps()
        self._exact = ExactChecks()
        self._state: Mapping[str, Any] | None = None
        self._failed: set[str] = set()
        self._has_said_what_is_missing = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the last place before the checkpoints, so that a checkpoint made by a stop has every callback's row."""
        if stage != "fit":
            return
        self.report = Report(run_dir(trainer), self.actions, self.hook, trainer.is_global_zero)
        others = [callback for callback in trainer.callbacks if callback is not self]  # type: ignore[attr-defined]
        last = [callback for callback in others if isinstance(callback, Checkpoint)]
        first = [callback for callback in others if not isinstance(callback, Checkpoint)]
        trainer.callbacks = [*first, self, *last]  # type: ignore[attr-defined]
        self._guard("device", lambda: _warn_of_device(trainer))  # what runs before the first update would crash on it

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather the facts, go on from a checkpoint, make the checks that need no update."""
        run_clock(trainer).start()
        self._open.start(trainer)
        self._step, self._is_due = trainer.global_step, True
        self._guard("start", lambda: self._start(trainer, pl_module))
        if not trainer.strategy.reduce_boolean_decision(self.diagnosis is not None, all=True):
            self.diagnosis = None  # it failed on some rank, and checks are made by all
        self._check("on_train_start", trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Read the former update's row: its evaluations, too, are over."""
        self._read_row(trainer)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Let exact checks look at weights before they change."""
        self._check("before_update", trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take a micro-batch's values; after an update make the exact checks, and stop if that was decided."""
        has_updated = trainer.global_step > self._step
        self._step = trainer.global_step
        self._guard("rows", lambda: self._open.add_micro_batch(trainer, outputs))
        self._guard("samples", lambda: self._samples.add(outputs, is_last=has_updated))
        if not has_updated:
            self._check("after_micro_batch", trainer, pl_module, outputs, batch)
            return
        self._is_due = True
        if trainer.global_step == 1:
            self._guard("facts", lambda: self._tell_size(trainer))
        self._check("after_update", trainer, pl_module, outputs, batch)
        self._stop_if_decided(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add an evaluation to the open row; a sanity check over part of the data is no evaluation."""
        partial = trainer.sanity_checking and trainer.num_sanity_val_batches != trainer.num_val_batches
        if self.report is not None and not partial:
            self._open.add_logged(trainer, "validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add what is logged once per epoch."""
        self._open.add_logged(trainer, "epoch")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read the last row."""
        run_clock(trainer).stop()
        self._read_row(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Read the last whole row: it may say why."""
        self._read_row(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note that there is a checkpoint of this update."""
        self._saved.announce(trainer)
        run_clock(trainer).save(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the saved hours."""
        run_clock(trainer).load(checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """Return histories, findings and the open row, all plain data."""
        diagnosis = self.diagnosis.state() if self.diagnosis is not None else None
        return {
            "diagnosis": diagnosis,
            "checks": self._exact.state_dict(),
            "row": self._open.state(),
            "saved": dict(self._saved.steps),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self._state = state_dict["diagnosis"]
        self._exact.load_state_dict(state_dict["checks"])
        self._open.load(state_dict["row"])
        self._saved.steps = dict(state_dict["saved"])

    def _start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.report is not None
        facts = gather_facts(trainer, pl_module)
        self.diagnosis = Diagnosis(RULES, KINDS, facts)
        step = trainer.global_step
        if step > 0:
            if self._state is not None:
                self.diagnosis.load_state(self._state)
            self.report.go_on_from(step, self.diagnosis.findings.values())
            self._read_row(trainer)  # of the update resumed from: it belongs to what came before
            self.diagnosis.anchor(step)
        self.report.tell_facts(step, facts, resumed=step > 0)

    def _read_row(self, trainer: Trainer) -> None:
        if self._is_due:
            self._is_due = False
            self._guard("rules", lambda: self._feed(trainer))

    def _feed(self, trainer: Trainer) -> None:
        if self.diagnosis is None:
            return
        row = self._open.read()
        self._saved.look(trainer)
        if not is_empty(row):
            step = int(row.pop(STEP))
            self._tell(trainer, self.diagnosis.add_row(step, row))
            if step > 0 and not self._has_said_what_is_missing:
                self._has_said_what_is_missing = True
                self._say_what_is_missing()
        for rule, reason in self.diagnosis.take_broken():
            rank_zero_warn(f"RunDoctor: the rule {rule} failed and is off for this run: {reason}")

    def _say_what_is_missing(self) -> None:
        """Name the exact checks without input, once; for metrics there is a finding of its own, ``metric_missing``."""
        assert self.diagnosis is not None
        missing = [name for name, result in self.diagnosis.checks.items() if result.status == "unknown"]
        if self.diagnosis.names <= {"hours"}:
            missing = ["this module shows no metrics"]
        if missing:
            rank_zero_info(f"RunDoctor could not be checked: {', '.join(missing)}. See callbacks/README.md.")

    def _check(self, moment: str, *args: Any) -> None:
        """Call the exact checks at one moment, on all ranks, whatever telling of them meets on one."""
        diagnosis, report = self.diagnosis, self.report
        if diagnosis is None or report is None:
            return
        results: list[CheckResult] = []
        self._guard(moment, lambda: results.extend(getattr(self._exact, moment)(*args) or ()))

        def tell() -> None:
            for result in results:
                report.tell_check(result)
                self._tell(args[0], diagnosis.add_check(result))

        self._guard("telling", tell)

    def _tell(self, trainer: Trainer, changed: list[Finding]) -> None:
        assert self.report is not None
        hours, _ = run_clock(trainer).read()
        for finding in changed:
            if finding.is_active and finding.state == "open" and not finding.sample_ids:
                by_length = finding.kind in _LONG
                finding.sample_ids = self._samples.worst(by_length=by_length)
            finding.last_good_checkpoint = self._saved.last_before(max(1, finding.onset[0]))
            if self.report.action(finding) == "stop" and finding.severity == "critical" and finding.is_active:
                self.stopped_by = self.stopped_by or finding
        self.report.tell(changed, hours)

    def _tell_size(self, trainer: Trainer) -> None:
        assert self.report is not None
        if self.diagnosis is not None and self._samples.num_rows:
            facts = {"window.num_completions": self._samples.num_rows * trainer.world_size}
            self.diagnosis.facts = {**self.diagnosis.facts, **facts}
            self.report.tell_facts(trainer.global_step, facts)

    def _stop_if_decided(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save and end training, on all ranks together."""
        if "stop" not in self.actions.values() or trainer.should_stop:
            return
        decided = trainer.strategy.reduce_boolean_decision(self.stopped_by is not None, all=False)
        if not decided:
            return
        folders = [c.dirpath for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.dirpath]
        path = f"{folders[0] if folders else run_dir(trainer)}/stopped-step={trainer.global_step}.ckpt"
        trainer.save_checkpoint(path)
        finding = self.stopped_by
        what = f"{finding.title} ({finding.kind}): {finding.summary}" if finding is not None else "on another rank"
        good = finding.last_good_checkpoint if finding is not None else None
        last = f"the last checkpoint from before it is {good}" if good else "no checkpoint from before it is left"
        note_stop(trainer, f"stopped by RunDoctor at update {trainer.global_step}: {what}; {last}; saved to {path}")
        trainer.should_stop = True

    def _guard(self, what: str, do: Callable[[], object]) -> None:
        """Run a part of the doctor; training goes on whatever happens in it."""
        if what in self._failed:
            return
        try:
            do()
        except Exception as error:  # a diagnosis is never worth the run it is about
            self._failed.add(what)
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            rank_zero_warn(f"RunDoctor: {what} failed and is off for this run: {reason}")


def _warn_of_device(trainer: Trainer) -> None:
    for result in device_checks(trainer):
        if result.status == "failed":
            rank_zero_warn(f"RunDoctor: {result.summary}")


_LONG = frozenset({"truncation", "all_truncated", "never_stops", "length_hacking"})
