"""Tokenised data on disk: made once, then memory-mapped, under a key that changes with anything it depends on."""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from lit_rlhf import __version__
from lit_rlhf.data.encode import NumberedRecord
from lit_rlhf.data.table import ExampleTable
from lit_rlhf.data.tally import Spread, Tally

WORTH_CACHING = 20_000_000  # characters; less is tokenised in seconds


def is_large(records: Sequence[NumberedRecord]) -> bool:
    """Tell whether tokenising takes long enough to do it only once."""
    num_characters = 0
    for _, record in records:
        for turns in (record.prompt, *record.completions):
            num_characters += len(turns) if isinstance(turns, str) else sum(len(m["content"]) for m in turns)
    return num_characters > WORTH_CACHING


def cache_key(records: Sequence[NumberedRecord], tokenizer: PreTrainedTokenizerBase, **settings: Any) -> str:
    """Hash everything the tokens depend on: data, tokenizer, chat template, settings and our own version."""
    digest = hashlib.blake2b(repr((__version__, sorted(settings.items()))).encode(), digest_size=16)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    digest.update(repr((vocabulary, tokenizer.chat_template, tokenizer.special_tokens_map)).encode())
    for numbered in records:
        digest.update(repr(numbered).encode())
    return digest.hexdigest()


def cache_root() -> Path:
    """Return where everything that is kept lies: ``$LIT_RLHF_CACHE``, by default ``~/.cache/lit_rlhf``."""
    return Path(os.environ.get("LIT_RLHF_CACHE", "~/.cache/lit_rlhf")).expanduser()


def cache_folder(key: str) -> Path:
    """Return where a key's tokenised data lies."""
    return cache_root() / "tokenised" / key


def load_cached(folder: Path) -> tuple[ExampleTable, Tally] | None:
    """Map what a cache folder holds into memory; None where there is nothing."""
    if not folder.is_dir():
        return None
    counts = json.loads((folder / "tally.json").read_text(encoding="utf-8"))
    for name in ("supervised", "lengths"):
        counts[name] = Spread(*counts[name])
    return ExampleTable.load(folder), Tally(**counts)


def save_cached(folder: Path, table: ExampleTable, tally: Tally) -> None:
    """Write a cache folder, all at once: it is never seen half written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        table.save(made)
        (made / "tally.json").write_text(json.dumps(dataclasses.asdict(tally)), encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
