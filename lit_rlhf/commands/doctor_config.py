"""What a run's ``config.yaml`` says, under the names that the doctor's rules know."""

from pathlib import Path
from typing import Any

import yaml

from lit_rlhf_callbacks.doctor_facts import flatten

_OF_THE_TRAINER = ("max_steps", "accumulate_grad_batches", "precision", "gradient_clip_val")


def config_facts(file: Path) -> dict[str, Any]:
    """Read the facts of a config; a run that had `RunDoctor` wrote better ones, of what it really used."""
    config = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    model, trainer = config.get("model") or {}, config.get("trainer") or {}
    settings = model.get("init_args", {})
    facts = flatten({f"model.{name}": value for name, value in settings.items()})
    facts["algorithm"] = str(model.get("class_path", "")).rpartition(".")[2]
    facts |= {f"trainer.{name}": trainer[name] for name in _OF_THE_TRAINER if trainer.get(name) is not None}
    for name in ("lr", "weight_decay"):
        if (value := facts.get(f"model.optimizer.init_args.{name}")) is not None:
            facts[f"optimizer.{name}"] = value
    if settings.get("beta") is not None:
        facts["beta"] = settings["beta"]
    return facts
