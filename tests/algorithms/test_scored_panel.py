"""A reward model's panel: held-out completions and what they score."""

import pytest
import torch
from transformers import AutoTokenizer

from lit_rlhf import builtin
from lit_rlhf.algorithms.scored_panel import panel_rows, scored_rows
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(builtin.model_folder("tiny"))


def test_each_completion_stands_with_its_score(tokenizer):
    prompt, *completions = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("say", "yes", "no!"))
    samples = [Sample(prompt + ids, [False] * 3 + [True] * len(ids), 3) for ids in completions]
    examples = [Example(7, samples), Example(9, samples[:1])]
    rows = panel_rows(examples, 5, tokenizer)
    assert [(row["prompt_id"], row["prompt"]) for row in rows] == [(7, "say"), (9, "say")]
    pair, single = scored_rows(rows, examples, tokenizer, lambda tensors: torch.arange(len(tensors["input_ids"])) + 0.5)
    assert pair["completion"] == "yes  |  no!"
    assert pair["rewards"] == {"score 1": 0.5, "score 2": 1.5}
    assert single["rewards"] == {"score": 0.5}


def test_prompts_without_completions_are_refused(tokenizer):
    with pytest.raises(UserError, match="leave prompts out"):
        scored_rows([{"prompt_id": 0, "prompt": "say"}], [], tokenizer, torch.sum)
