"""A fault, and how a real run gets one: objects are patched from outside, where no setting shows it."""

import gzip
import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from lit_rlhf.cli.arguments import read_arguments
from lit_rlhf.cli.lightning_cli import LitRLHFCLI
from lit_rlhf_callbacks import ExactResume, RunDoctor, SamplePanel

CONFIGS = Path(__file__).parents[2] / "configs"
ONLINE = ("--data.prompts_per_phase", "4", "--data.num_eval", "64", "--trainer.val_check_interval", "40")
OFTEN = ("--trainer.val_check_interval", "10")  # for faults that only held-out samples tell from success
OFFLINE = ("--data.num_eval", "64", "--trainer.val_check_interval", "10")
LONG = ("--trainer.max_steps", "80")


@dataclass(frozen=True)
class Fault:
    """One way to break a run, or none.

    Args:
        name: Of the fault.
        config: The shipped YAML that is broken.
        inject: Called with the trainer and the module; None where the fault is a setting (``args``).
        at: After this update; 0 is before the first one, when model and data are there.
        args: Flags on top of the config.
        kinds: Any of these, as a root, names the fault.
        causes: The true cause, under whatever names it has in those kinds.
        resume: Stop after ``at`` updates, then go on in a new process's place with the fault injected before.
    """

    name: str
    config: str
    inject: Callable | None = None
    at: int = 0
    args: tuple[str, ...] = LONG
    kinds: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    resume: bool = False

    @property
    def is_online(self):
        return "class_path: PromptData" in (CONFIGS / f"{self.config}.yaml").read_text()

    @property
    def id(self):
        return f"{self.name}-{self.config}"


@dataclass
class Inject(Callback):
    """Break the run at the right moment."""

    fault: Fault
    start: int = 0  # update that a resumed run goes on from
    done: bool = field(default=False, init=False)

    def on_fit_start(self, trainer, pl_module):
        if self.fault.at == self.start:
            self.break_it(trainer, pl_module)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step >= self.fault.at > self.start:
            self.break_it(trainer, pl_module)

    def break_it(self, trainer, pl_module):
        if not self.done and self.fault.inject is not None:
            self.done = True
            self.fault.inject(trainer, pl_module)


class FaultyCLI(LitRLHFCLI):
    """The product's own command, with a doctor and a fault among its callbacks."""

    extra: tuple[Callback, ...] = ()
    keeps = (RunDoctor,)
    drops = (SamplePanel, ModelCheckpoint, ExactResume)

    def _instantiate_trainer(self, config, callbacks):
        configured = [c for c in config["callbacks"] if not isinstance(c, self.drops)]
        if not any(isinstance(callback, RunDoctor) for callback in configured):
            configured.append(RunDoctor())
        return super()._instantiate_trainer({**config, "callbacks": configured}, [*callbacks, *self.extra])


def run(fault, seed, folder):
    """Train once and return the run directory."""
    sizes = ONLINE if fault.is_online else OFFLINE
    flags = ["--seed_everything", str(seed), "--trainer.default_root_dir", str(folder), *sizes, *fault.args]
    quiet = ["--trainer.enable_progress_bar", "false", "--name", "run"]
    command = ["fit", "--config", str(CONFIGS / f"{fault.config}.yaml"), *flags, *quiet]
    if fault.resume:
        _train([*command, "--trainer.max_steps", str(fault.at)], (_SaveAtEnd(folder / "half.ckpt"),))
        command += ["--ckpt_path", str(folder / "half.ckpt")]
        _train(command, (Inject(fault, start=fault.at),))
        return folder / "runs" / "run-2"
    _train(command, (Inject(fault),))
    return folder / "runs" / "run"


def _train(command, extra):
    cli = type("CLI", (FaultyCLI,), {"extra": extra})
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cli(*read_arguments(command))
        except Exception as error:  # a broken run may well die; what it wrote until then is the recording
            if not list(Path(command[command.index("--trainer.default_root_dir") + 1]).glob("runs/*/metrics.csv")):
                raise
            print(f"ended with {type(error).__name__}: {error}")


@dataclass
class _SaveAtEnd(Callback):
    path: Path

    def on_train_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.path)


def record(fault, seed, path):
    """Run a fault and write its recording: facts, checks, rows, and what is wrong."""
    folder = Path(tempfile.mkdtemp())
    try:
        run_dir = run(fault, seed, folder)
        lines = (run_dir / "checks.jsonl").read_text().splitlines()
        recording = {
            "fault": fault.name,
            "config": fault.config,
            "seed": seed,
            "at": fault.at,
            "kinds": fault.kinds,
            "causes": fault.causes,
            "facts": json.loads(lines[0])["facts"],
            "checks": [json.loads(line) for line in lines[1:]],
            "columns": _columns(run_dir / "metrics.csv"),
        }
        draft = path.with_suffix(".tmp")
        with gzip.GzipFile(draft, "wb", mtime=0) as file:  # the same run, the same bytes
            file.write(json.dumps(recording, separators=(",", ":")).encode())
        os.replace(draft, path)
    finally:
        shutil.rmtree(folder)


def read(path):
    """Return a recording, its rows as ``(step, {metric: value})``."""
    with gzip.open(path) as file:
        recording = json.loads(file.read())
    columns = recording.pop("columns")
    steps = columns["global_step"]
    rows = [
        {name: _number(values[place]) for name, values in columns.items() if values[place] is not None}
        for place in range(len(steps))
    ]
    recording["rows"] = [(int(row.pop("global_step")), row) for row in rows]
    return recording


def _columns(path):
    """Return a metrics.csv as columns; None: not measured; text: not finite."""
    import csv

    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [_short(row[name]) for row in rows] for name in rows[0]}


def _short(text):
    if text == "":
        return None
    value = float(text)
    return float(f"{value:.5g}") if math.isfinite(value) else text


def _number(value):
    return float(value)
