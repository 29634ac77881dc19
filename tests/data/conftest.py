import json

import pytest
from transformers import AutoTokenizer

from lit_rlhf import builtin


@pytest.fixture
def tokenizer():
    """The embedded model's: a token per byte; ids 0 to 4 are <pad> <bos> <eos> <user> <assistant>."""
    return AutoTokenizer.from_pretrained(builtin.model_folder("tiny"))


@pytest.fixture
def write(tmp_path):
    """Write rows, or lines as they are, to a file and return its name."""

    def write_rows(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in rows))
        return str(path)

    return write_rows


@pytest.fixture
def ready(tokenizer):
    """Read and tokenise a DataModule's data."""

    def make_ready(data, kind=None):
        data.setup("fit")
        data.tokenise(tokenizer, kind=kind)
        return data

    return make_ready


@pytest.fixture
def shown(tokenizer):
    """Spell a sample out, the tokens that count in brackets."""

    def show(sample, tokenizer=tokenizer):
        text = ""
        for token, counts in zip(sample.ids, sample.mask, strict=True):
            word = tokenizer.decode([int(token)])
            text += f"[{word}]" if counts else word
        return text.replace("][", "")

    return show
