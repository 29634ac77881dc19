"""The config a run was started with, kept in its run directory."""

from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

from lit_rlhf_callbacks.run_dir import run_dir

NOT_SAVED = ("ckpt_path", "debug", "resume")  # how this process was started, not what is run


class SaveRunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` into the run directory, and hands it to the logger if there is one.

    A second run never stumbles over the first one's file, since every run has a directory of its own. A resume with
    other settings keeps the former file as ``config.1.yaml``.
    """

    def __init__(self, parser: Any, config: Any, run_name: str | None = None) -> None:
        super().__init__(parser, config, save_to_log_dir=False)
        self.run_name = run_name  # where lit_rlhf_callbacks.run_dir looks
        self._folder: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Agree on the run directory on all ranks; only then is something written by rank 0 alone."""
        if stage == "fit":
            self._folder = run_dir(trainer)
            super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the file (rank 0 only)."""
        assert self._folder is not None
        config = self.config.clone()
        for name in NOT_SAVED:
            config.pop(name, None)
        text = self.parser.dump(config, skip_none=False, skip_validation=True)
        _keep_former(self._folder / "config.yaml", text)
        (self._folder / "config.yaml").write_text(text, encoding="utf-8")
        for logger in trainer.loggers:
            logger.log_hyperparams({"config": yaml.safe_load(text)})


def _keep_former(file: Path, text: str) -> None:
    if not file.is_file() or file.read_text(encoding="utf-8") == text:
        return
    number = 1
    while file.with_name(f"config.{number}.yaml").exists():
        number += 1
    file.rename(file.with_name(f"config.{number}.yaml"))
