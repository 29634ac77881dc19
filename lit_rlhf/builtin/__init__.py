"""What runs with no network: the embedded tiny model, its tokenizer, tasks and sentinel items."""

import difflib
import json
from pathlib import Path
from typing import Any

MODELS = ("tiny",)
SENTINELS = ("letter_order", "made_up_facts")

_HERE = Path(__file__).parent


def model_folder(name: str) -> Path:
    """Find the folder of an embedded model, an ordinary Hugging Face folder.

    Args:
        name: One of :data:`MODELS`.

    Returns:
        The folder inside the installed package; load it with ``AutoModelForCausalLM.from_pretrained``.

    Raises:
        ValueError: No model of that name is embedded.
    """
    return _HERE / _known("built-in model", name, MODELS)


def sentinel_file(name: str) -> Path:
    """Find the JSON lines of an embedded multiple-choice set (see :mod:`lit_rlhf.builtin.sentinel_items`).

    Args:
        name: One of :data:`SENTINELS`.

    Returns:
        A file of rows ``{"question": str, "options": list[str], "answer": int}``.

    Raises:
        ValueError: No set of that name is embedded.
    """
    return _HERE / "sentinels" / (_known("built-in sentinel set", name, SENTINELS) + ".jsonl")


def load_sentinels() -> dict[str, list[dict[str, Any]]]:
    """Read the embedded multiple-choice sets.

    Returns:
        By name, rows ``{"question": messages, "options": list[str], "answer": int}``: the embedded model has learned
        them as answers in a chat.
    """
    sets = {}
    for name in SENTINELS:
        rows = [json.loads(line) for line in sentinel_file(name).read_text(encoding="utf-8").splitlines()]
        sets[name] = [{**row, "question": [{"role": "user", "content": row["question"]}]} for row in rows]
    return sets


def _known(kind: str, name: str, known: tuple[str, ...]) -> str:
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"unknown {kind}: '{name}'{hint} (known: {', '.join(known)})")
