"""From the name a user writes to the place a model is loaded from."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from transformers.utils.hub import cached_file

from lit_rlhf import builtin
from lit_rlhf_callbacks.errors import UserError

ModelKind = Literal["builtin", "run", "folder", "hub"]

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


class ResolvedModel(NamedTuple):
    """Where a model lies."""

    source: str
    """A local folder, or a Hugging Face hub id: what ``from_pretrained`` takes."""
    kind: ModelKind
    """What the name turned out to be."""


def resolve_model(name: str) -> ResolvedModel:
    """Find the model a name stands for.

    Args:
        name: ``builtin:tiny`` (embedded, needs no network), a run directory (stands for its ``model/``), a local
            Hugging Face folder (a model or a PEFT adapter), or a Hugging Face hub id.

    Returns:
        The folder or hub id to load, and which of the four it is.

    Raises:
        UserError: Nothing that can be loaded goes by this name.
    """
    if name.startswith("builtin:"):
        try:
            return ResolvedModel(str(builtin.model_folder(name.removeprefix("builtin:"))), "builtin")
        except ValueError as error:
            raise UserError(f"model '{name}': {error}") from error
    path = Path(name).expanduser()
    if path.is_dir():
        return _resolve_folder(name, path)
    if path.is_file():
        raise UserError(f"model '{name}' is a file: give the folder that holds config.json and model.safetensors")
    if _HUB_ID.fullmatch(name) is None or name.startswith("."):
        raise UserError(f"model '{name}': no such folder; give a local folder, a hub id or builtin:tiny")
    return _resolve_hub_id(name)


def _resolve_folder(name: str, path: Path) -> ResolvedModel:
    is_run = (path / "run.json").is_file() or ((path / "config.yaml").is_file() and (path / "model").is_dir())
    folder = path / "model" if is_run else path
    if is_run and not folder.is_dir():
        raise UserError(f"model '{name}' is a run directory without model/: let the run end (Ctrl-C writes it too)")
    if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise UserError(f"model '{name}': no config.json in {folder}; give a model folder or a run directory")
    return ResolvedModel(str(folder.resolve()), "run" if is_run else "folder")


def _resolve_hub_id(name: str) -> ResolvedModel:
    try:
        found = has_file(name, "config.json") or has_file(name, "adapter_config.json")
    except OSError:  # no such repository, or one that needs a login
        found = False
    if not found:
        raise UserError(
            f"model '{name}': no folder of that name here, and no such model on the Hugging Face hub (or no network); "
            "check the name, download the model first, or use builtin:tiny"
        )
    return ResolvedModel(name, "hub")


def has_file(source: str, file: str) -> bool:
    """Say whether a local folder or a hub repository holds a file.

    Args:
        source: A local folder or a hub id.
        file: Name of the file at its top level.

    Raises:
        OSError: A hub repository that doesn't exist.
    """
    if Path(source).is_dir():
        return (Path(source) / file).is_file()
    return cached_file(source, file, _raise_exceptions_for_missing_entries=False) is not None


def first_line(error: Exception) -> str:
    """The first line of an exception's message, for an error that must fit in one."""
    return str(error).strip().split("\n")[0]
