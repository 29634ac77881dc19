"""``run.json``: what was run, on what, how it ended."""

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lit_rlhf_callbacks.append_only import replace_text
from lit_rlhf_callbacks.environment import command, git_state, hardware, versions
from lit_rlhf_callbacks.logged_values import as_floats
from lit_rlhf_callbacks.metric_table import in_table_order
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.run_clock import run_clock
from lit_rlhf_callbacks.run_dir import run_dir
from lit_rlhf_callbacks.stop_reason import stop_reason


class RunRecord(Callback):
    """Write one ``run.json`` into the run directory, at the start, at the end and when the run breaks off.

    It holds the command, versions, git commit, seed, hardware, number of ranks, start and end, hours, status
    (``running``, ``finished``, ``stopped by …``, ``interrupted`` or ``failed: <message>``), final metrics, loggers with
    their links, and what the module's ``run_facts()`` and the data module's ``data_facts()`` say, where there are such
    methods. A process that is killed leaves ``running``.

    Args:
        note: Free text to remember the run by.
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(self, note: str | None = None) -> None:
        self.note = note
        self.path: Path | None = None
        self._record: dict[str, Any] = {}
        self._evaluated: dict[str, Any] = {}
        self._returned: dict[str, Any] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Collect the facts that do not depend on the model."""
        if stage != "fit":
            return
        self.path = run_dir(trainer) / "run.json"
        earlier = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self._record = {
            "name": self.path.parent.name,
            "note": self.note if self.note is not None else earlier.get("note"),
            "command": command(),
            "started": earlier.get("started", _now()),
            "ended": None,
            "resumed": earlier.get("resumed", []),
            "world_size": trainer.world_size,
            "seed": _number_or_none(os.environ.get("PL_GLOBAL_SEED")),
            "versions": versions(),
            "git": git_state() if trainer.is_global_zero else None,
            "hardware": hardware(trainer),
        }

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the record for the first time."""
        run_clock(trainer).start()
        if trainer.global_step > 0:
            self._record["resumed"].append({"time": _now(), "global_step": trainer.global_step})
        for key, owner, method in (
            ("run", pl_module, "run_facts"),
            ("data", trainer.datamodule, "data_facts"),  # type: ignore[attr-defined]
        ):
            facts = offered(owner, method)
            self._record[key] = facts() if facts is not None else None
        self._record["loggers"] = [_logger_facts(logger) for logger in trainer.loggers if trainer.is_global_zero]
        self._write(trainer, "running")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Remember the last update's values."""
        if isinstance(outputs, dict) and outputs.get("metrics"):
            self._returned = outputs["metrics"]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the last evaluation's values."""
        if not trainer.sanity_checking:
            self._evaluated |= trainer.callback_metrics

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the final metrics."""
        self._evaluated |= trainer.callback_metrics
        self._record["ended"] = _now()
        self._write(trainer, stop_reason(trainer) or "finished")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Say how the run broke off."""
        if self.path is None:
            return
        self._record["ended"] = _now()
        stopped = isinstance(exception, KeyboardInterrupt | SIGTERMException)
        reason = f"{type(exception).__name__}: {exception}".splitlines()[0]
        self._write(trainer, "interrupted" if stopped else f"failed: {reason}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the hours, shared by all callbacks that show them."""
        run_clock(trainer).save(checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the saved hours."""
        run_clock(trainer).load(checkpoint)

    def _write(self, trainer: Trainer, status: str) -> None:
        if not trainer.is_global_zero:
            return
        assert self.path is not None
        hours, device_hours = run_clock(trainer).read()
        last = as_floats(self._evaluated | self._returned)
        record = self._record | {
            "status": status,
            "global_step": trainer.global_step,
            "hours": hours,
            "device_hours": device_hours,
            "final_metrics": {name: last[name] for name in in_table_order(last)} if status != "running" else None,
        }
        replace_text(self.path, json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n")


def _logger_facts(logger: Any) -> dict[str, str | None]:
    link = getattr(logger.experiment, "url", None)  # Weights & Biases and Comet have one
    return {"name": type(logger).__name__, "link": link if isinstance(link, str) else logger.log_dir or logger.save_dir}


def _number_or_none(text: str | None) -> int | None:
    return int(text) if text else None


def _now() -> str:
    return datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
