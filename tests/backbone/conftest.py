"""Tiny random models as ordinary folders, and rows to score on them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

VOCAB_SIZE = 64


def make_config(architecture: str, **settings: object) -> PreTrainedConfig:
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **settings}
    if architecture == "gpt2":
        return GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **common)
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        **common,
    }
    if architecture == "gemma2":
        # The cap is far below any real model's: it must bite on the small logits of random weights.
        return Gemma2Config(head_dim=8, final_logit_softcapping=0.1, **shape)
    return {"llama": LlamaConfig, "cohere": CohereConfig}[architecture](**shape)


def make_tokenizer(pad_token: str | None) -> PreTrainedTokenizerFast:
    names = ["<pad>", "<bos>", "<eos>", *(f"w{i}" for i in range(3, VOCAB_SIZE))]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token=pad_token,
        chat_template=template,
    )


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., str]:
    """Write a tiny random model and its tokenizer; each call another folder."""

    def make(
        architecture: str = "llama", *, pad_token: str | None = "<pad>", seed: int = 0, scale: float = 10.0, **settings
    ) -> str:
        folder = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(make_config(architecture, **settings))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(scale)  # far from uniform, so that a mistake shows
        model.save_pretrained(folder)
        make_tokenizer(pad_token).save_pretrained(folder)
        return str(folder)

    return make


class Rows(NamedTuple):
    """Right-padded rows as ``score_tokens`` takes them."""

    input_ids: Tensor
    attention_mask: Tensor
    score_mask: Tensor


@pytest.fixture
def make_rows() -> Callable[..., Rows]:
    """Pad rows of ids; the first ``num_prompt`` of each are the prompt, the rest is scored."""

    def make(
        rows: list[list[int]], num_prompt: int = 2, *, pad_id: int = 0, side: str = "right", extra: int = 0
    ) -> Rows:
        width = max(map(len, rows)) + extra
        ids, attention, score = [], [], []
        for row in rows:
            pads = width - len(row)
            before, after = (pads, 0) if side == "left" else (0, pads)
            ids.append([pad_id] * before + row + [pad_id] * after)
            attention.append([False] * before + [True] * len(row) + [False] * after)
            score.append([False] * (before + num_prompt) + [True] * (len(row) - num_prompt) + [False] * after)
        return Rows(torch.tensor(ids), torch.tensor(attention), torch.tensor(score))

    return make


@pytest.fixture
def rows(make_rows: Callable[..., Rows]) -> Rows:
    return make_rows([[5, 6, 7, 8, 9, 2], [10, 11, 12, 2], [20, 21, 22, 23, 24, 25, 26, 2]])
