"""A fault, and how a real run gets one: objects are patched from outside, where no setting shows it."""

import csv
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
SHORT = ("--trainer.max_steps", "25")  # for what exact checks or the first rows show
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
    """Train once, in ``folder/runs/run``; a resumed fault goes on in ``run-2``."""
    sizes = ONLINE if fault.is_online else OFFLINE
    if fault.config == "reinforce":  # one completion per prompt
        sizes = (*ONLINE, "--data.prompts_per_phase", "32")
    flags = ["--seed_everything", str(seed), "--trainer.default_root_dir", str(folder), *sizes, *fault.args]
    quiet = ["--trainer.enable_progress_bar", "false", "--name", "run"]
    command = ["fit", "--config", str(CONFIGS / f"{fault.config}.yaml"), *flags, *quiet]
    if fault.resume:
        saving = ModelCheckpoint(folder, "half", every_n_train_steps=fault.at, save_on_train_epoch_end=False)
        _train([*command, "--trainer.max_steps", str(fault.at)], (saving,))
        command += ["--ckpt_path", str(folder / "half.ckpt")]
        _train(command, (Inject(fault, start=fault.at),))
        return
    _train(command, (Inject(fault),))


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


def record(fault, seed, path):
    """Run a fault and write its recording: facts and checks, rows, and what is wrong."""
    folder = Path(tempfile.mkdtemp())
    try:
        run(fault, seed, folder)
        run_dirs = sorted((folder / "runs").iterdir())  # of a resumed run, both halves
        lines = [line for run_dir in run_dirs for line in (run_dir / "checks.jsonl").read_text().splitlines()]
        recording = {
            "fault": fault.name,
            "config": fault.config,
            "seed": seed,
            "at": fault.at,
            "checks": [json.loads(line) for line in lines],
            "columns": _columns([run_dir / "metrics.csv" for run_dir in run_dirs]),
        }
        draft = path.with_suffix(".tmp")
        with gzip.GzipFile(draft, "wb", mtime=0) as file:  # the same run, the same bytes
            file.write(json.dumps(recording, separators=(",", ":")).encode())
        os.replace(draft, path)
    finally:
        shutil.rmtree(folder)


def _columns(paths):
    """Return the files' rows as columns; None: not measured; text: not finite."""
    rows = {}
    for path in paths:
        with path.open() as file:
            rows |= {int(row["global_step"]): row for row in csv.DictReader(file)}
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return {name: [_short(row.get(name, "")) for _, row in sorted(rows.items())] for name in names}


def _short(text):
    if text == "":
        return None
    value = float(text)
    return float(f"{value:.5g}") if math.isfinite(value) else text
