"""Facts about where a run happens: the command, versions, code and hardware."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from typing import Any

import torch
from lightning.pytorch import Trainer

_PACKAGES = ("lit-rlhf", "torch", "lightning", "transformers", "peft", "datasets", "vllm", "wandb")


def command() -> str:
    """Return the command line of this process, ready to paste into a shell."""
    return shlex.join([os.path.basename(sys.executable), *sys.orig_argv[1:]])


def versions() -> dict[str, str]:
    """Return the versions of Python and of those packages that shape a run, where they are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any] | None:
    """Return the commit of the current folder and whether it has changes; None outside a git repository."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "has_changes": _git("status", "--porcelain", "--untracked-files=no") != ""}


def hardware(trainer: Trainer) -> dict[str, Any]:
    """Return what the trainer computes on."""
    device = trainer.strategy.root_device
    facts: dict[str, Any] = {"device": str(device), "machine": platform.platform(), "num_cpus": os.cpu_count()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "gpu": properties.name,
            "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
            "compute_capability": f"{properties.major}.{properties.minor}",
        }
    return facts


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or a very slow one: a fact less
        return None
    return done.stdout.strip()
