"""LightningCLI for ``fit`` and ``validate``: any algorithm with any data module, and the config is the truth."""

import sys
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import set_parsing_settings
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

import lit_rlhf.algorithms
import lit_rlhf.data
import lit_rlhf_callbacks
from lit_rlhf.algorithms import Algorithm
from lit_rlhf.cli.arguments import read_arguments
from lit_rlhf.cli.known_names import parser_keys
from lit_rlhf.cli.progress import UpdateProgressBar
from lit_rlhf.cli.quiet import quiet
from lit_rlhf.cli.readable import readable
from lit_rlhf.cli.saved_config import SaveRunConfig
from lit_rlhf_callbacks.errors import RunStoppedError, UserError
from lit_rlhf_callbacks.run_dir import assign_run_dir
from lit_rlhf_callbacks.stop_reason import stop_reason

# Short class names (`--model GRPO`) work for classes that are imported, and a package may import them only when asked.
for package in (lit_rlhf.algorithms, lit_rlhf.data, lit_rlhf_callbacks):
    for class_name in package.__all__:
        getattr(package, class_name)

TRAINER_DEFAULTS: dict[str, Any] = {
    "num_sanity_val_steps": 0,  # it would generate before step 0; the run evaluates there anyway
    "inference_mode": False,  # tensors made under inference mode poison caches that training reads
    "check_val_every_n_epoch": None,  # val_check_interval counts batches over the whole run
    "log_every_n_steps": 1,  # an update is seconds, not milliseconds
    "logger": False,  # metrics.csv is written by RunFiles
    "enable_model_summary": False,
}
CHECKPOINT_KEYWORDS = ("best", "last", "hpc")  # Lightning finds these itself


class LitRLHFCLI(LightningCLI):
    """LightningCLI whose model is an ``Algorithm`` and whose settings are always the config's.

    Args:
        args: A subcommand (``fit``, ``validate``) and its flags, config files already found.
        resume_from: The run directory to go on in.
    """

    def __init__(self, args: Sequence[str], resume_from: Path | None = None) -> None:
        self.resume_from = resume_from
        super().__init__(
            Algorithm,
            LightningDataModule,
            save_config_callback=SaveRunConfig,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=42,
            parser_kwargs={
                "exit_on_error": False,
                "fit": {"exit_on_error": False},
                "validate": {"exit_on_error": False},
            },
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            args=list(args),
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Name the Trainer methods that are commands, and the arguments that are ours to fill in."""
        kept = LightningCLI.subcommands()
        return {name: kept[name] for name in ("fit", "validate")}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the flags that are about the run, not about the model, the data or the trainer."""
        parser.add_argument("--name", type=str | None, default=None, help="Name of the run directory, runs/NAME.")
        parser.add_argument(
            "--note", type=str | None, default=None, help="A line about this run, kept in its run.json."
        )
        parser.add_argument(
            "--resume", type=str | None, default=None, metavar="RUN_DIR",
            help="Go on in this run directory, with its config.yaml and its last checkpoint; later flags on top.",
        )  # fmt: skip
        parser.add_argument("--debug", action="store_true", help="Show the whole traceback of an error.")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, and turn what the parser says into one line.

        Raises:
            UserError: Something in the arguments or in a config is not known or not valid.
        """
        try:
            self.config = parser.parse_args(args)  # type: ignore[arg-type]
        except ArgumentError as error:
            keys = parser_keys(self._subcommand_parsers[args[0]])  # type: ignore[index]
            raise UserError(readable(str(error), keys)) from error

    def _parse_ckpt_path(self) -> None:
        """Only look whether it is there: Lightning would put the checkpoint's hyper-parameters over the config."""
        path = self.config[self.config.subcommand].ckpt_path
        if path is not None and path not in CHECKPOINT_KEYWORDS and "://" not in path and not Path(path).exists():
            raise UserError(f"ckpt_path: no checkpoint {path}; give a .ckpt file, or --resume a run directory")

    def instantiate_classes(self) -> None:
        """Make data, model and trainer; an error of ours loses the parser's account of what else it tried.

        Raises:
            UserError: A setting has a value that its class refuses.
        """
        try:
            super().instantiate_classes()
        except ValueError as error:
            cause: BaseException | None = error
            while cause is not None:
                if isinstance(cause, UserError):
                    raise cause from None
                cause = cause.__cause__ or cause.__context__
            raise

    def after_fit(self) -> None:
        """Let a run that a callback has stopped end as one.

        Raises:
            RunStoppedError: `RunDoctor` ended it, say.
        """
        if (reason := stop_reason(self.trainer)) is not None:
            raise RunStoppedError(reason)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the trainer, and give the run its name, its note and, on a resume, its old directory."""
        trainer = super().instantiate_trainer(**kwargs)
        for name, value in (("run_name", self._get(self.config, "name")), ("note", self._get(self.config, "note"))):
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                if value is not None and hasattr(callback, name):
                    setattr(callback, name, value)
        if self.resume_from is not None:
            assign_run_dir(trainer, resume_from=self.resume_from)
        return trainer

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        own = list(callbacks)
        configured = config.get("callbacks") or []
        wanted = config.get("enable_progress_bar") is not False and not config.get("barebones")
        if wanted and not _has_progress_bar(configured):
            own.append(UpdateProgressBar())
        return super()._instantiate_trainer(config, own)


def _has_progress_bar(callbacks: list[Callback] | Callback) -> bool:
    return any(
        isinstance(callback, ProgressBar) for callback in (callbacks if isinstance(callbacks, list) else [callbacks])
    )


def main(args: Sequence[str] | None = None) -> LitRLHFCLI:
    """Run ``fit`` or ``validate``.

    Args:
        args: The subcommand and its flags; None takes the process's own.

    Returns:
        The finished command, with its ``trainer``, ``model`` and ``datamodule``.

    Raises:
        UserError: A setting, a config or the data is wrong; the message is one line.
        RunStoppedError: A callback ended the run.
    """
    quiet()
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    return LitRLHFCLI(*read_arguments(sys.argv[1:] if args is None else args))
