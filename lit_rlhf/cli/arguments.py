"""What a user types becomes what LightningCLI reads: shipped configs by name, and ``--resume``."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import yaml

from lit_rlhf.cli.spelling import meant
from lit_rlhf_callbacks.errors import UserError

CONFIG_FLAGS = ("--config", "-c")
SHIPPED = Path(__file__).parents[1] / "configs"


class Arguments(NamedTuple):
    """A command line with every config file found."""

    args: list[str]
    resume_from: Path | None
    """The run directory to go on in."""


def read_arguments(args: Sequence[str]) -> Arguments:
    """Find the config files and turn ``--resume RUN_DIR`` into that run's config and last checkpoint.

    Args:
        args: A subcommand and its flags.

    Raises:
        UserError: A config or a run directory is not there, or a config is no YAML.
    """
    found: list[str] = []
    resume_from = None
    rest = iter(args)
    for arg in rest:
        flag, equals, value = arg.partition("=")
        if flag not in (*CONFIG_FLAGS, "--resume"):
            found.append(arg)
            continue
        value = value if equals else next(rest, "")
        if not value:
            raise UserError(f"{flag}: give a file" if flag != "--resume" else f"{flag}: give a run directory")
        if flag == "--resume":
            resume_from = Path(value)
        else:
            found += [flag, str(find_config(value))]
    if resume_from is not None:
        found = _resumed(found, resume_from)
    return Arguments(found, resume_from)


def find_config(name: str) -> Path:
    """Find a config: a file as given, else one that ships with the package (``grpo``, ``configs/grpo.yaml``).

    Raises:
        UserError: There is no such file, or it is no YAML.
    """
    path = Path(name)
    if not path.is_file():
        short = name.removesuffix(".yaml").removeprefix("configs/")
        path = SHIPPED / f"{short}.yaml"
        if not path.is_file():
            names = shipped_configs()
            hint = meant(short, names) or f"there are: {', '.join(names)}"
            raise UserError(f"--config {name}: no such file, and no such shipped config; {hint}")
    try:
        yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UserError(f"{where}: no valid YAML: {getattr(error, 'problem', error)}") from error
    return path


def shipped_configs() -> list[str]:
    """Name the configs that ship with the package, as ``--config`` takes them."""
    return sorted(path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.yaml"))


def last_checkpoint(folder: Path) -> Path:
    """Find the checkpoint with the most updates in a run directory.

    The number is read from the files: names are the user's to choose, and times are lost when a folder is copied.

    Raises:
        UserError: There is none.
    """
    checkpoints = sorted((folder / "checkpoints").glob("*.ckpt"))
    if not checkpoints:
        raise UserError(
            f"--resume {folder}: no checkpoint in {folder / 'checkpoints'}; "
            f"start again with --config {folder / 'config.yaml'}"
        )
    return max(checkpoints, key=lambda path: (_global_step(path), path.stem.startswith("last")))


def _global_step(checkpoint: Path) -> int:
    file = checkpoint / "meta.pt" if checkpoint.is_dir() else checkpoint  # a folder: one file per rank, and this one
    return int(torch.load(file, map_location="cpu", weights_only=True, mmap=True)["global_step"])


def _resumed(args: list[str], folder: Path) -> list[str]:
    config = folder / "config.yaml"
    if not config.is_file():
        raise UserError(f"--resume {folder}: no config.yaml there; give a run directory, such as runs/<name>")
    command, flags = args[0], args[1:]
    if not any(flag.partition("=")[0] == "--ckpt_path" for flag in flags):
        flags = [*flags, "--ckpt_path", str(last_checkpoint(folder))]
    return [command, "--config", str(config), *flags]
