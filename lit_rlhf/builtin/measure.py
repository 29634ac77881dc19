"""What the embedded model can do, measured: held-out pass@1 of a task and multiple choice on the sentinels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from transformers import PreTrainedTokenizerBase

# Prompt ids up to where the assistant answers, and the ids of its answer with EOS.
Example = tuple[list[int], list[int]]

_ROWS_AT_ONCE = 256


class PassAt1(NamedTuple):
    """How often a model answers right when sampled at temperature 1: exact expectations, not counts of samples.

    Attributes:
        pass_at_1: Probability of the right answer, mean over prompts.
        mixed_groups: Probability that a group of 8 samples holds right and wrong answers, mean over prompts.
        by_length: ``pass_at_1`` by number of bytes of the answer.
    """

    pass_at_1: float
    mixed_groups: float
    by_length: dict[int, float]


def encode(tokenizer: PreTrainedTokenizerBase, prompt: list[dict[str, str]] | str, answer: str) -> Example:
    """Turn a question and its answer into token ids.

    Args:
        tokenizer: A tokenizer with a chat template.
        prompt: Messages, or the text of one user message.
        answer: What the assistant should say.

    Returns:
        The rendered prompt's ids, generation prompt included, and the answer's ids with EOS.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt_ids, answer_ids = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (text, answer))
    return prompt_ids, [*answer_ids, tokenizer.eos_token_id]


def answer_logps(model: nn.Module, examples: list[Example]) -> tuple[Tensor, Tensor]:
    """Score the tokens of given answers.

    Args:
        model: A causal LM.
        examples: Prompt and answer ids; rows are filled up on the right, which causal attention never sees.

    Returns:
        ``[B, T]`` log-probabilities, 0 outside the answers, and the ``[B, T]`` mask of the answers' tokens.
    """
    width = max(len(prompt) + len(answer) for prompt, answer in examples)
    input_ids = torch.zeros(len(examples), width, dtype=torch.long)
    answer_mask = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(examples):
        input_ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        answer_mask[row, len(prompt) : len(prompt) + len(answer)] = True
    logits = model(input_ids=input_ids).logits.float()
    logps = -cross_entropy(logits[:, :-1].transpose(1, 2), input_ids[:, 1:], reduction="none")
    return pad(logps, (1, 0)) * answer_mask, answer_mask


@torch.no_grad()
def measure_pass_at_1(model: nn.Module, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]]) -> PassAt1:
    """Compute pass@1 at temperature 1 from the probability of the one right answer.

    With one token per byte a text has one tokenization, so p(answer and EOS) *is* the chance that a sample is right to
    the letter, and there is no sampling error.

    Args:
        model: A causal LM in eval mode.
        tokenizer: Its byte-level tokenizer.
        rows: Rows ``{"prompt", "answer"}`` of a built-in task.

    Returns:
        Means over the rows.
    """
    examples = [encode(tokenizer, row["prompt"], row["answer"]) for row in rows]
    parts = [examples[i : i + _ROWS_AT_ONCE] for i in range(0, len(examples), _ROWS_AT_ONCE)]
    right = torch.cat([answer_logps(model, part)[0].sum(1) for part in parts]).double().exp()  # [prompts]
    lengths = torch.tensor([len(answer) - 1 for _, answer in examples])
    return PassAt1(
        pass_at_1=right.mean().item(),
        mixed_groups=(1 - right**8 - (1 - right) ** 8).mean().item(),
        by_length={int(length): right[lengths == length].mean().item() for length in lengths.unique()},
    )


@torch.no_grad()
def measure_choice(model: nn.Module, tokenizer: PreTrainedTokenizerBase, items: list[dict[str, Any]]) -> float:
    """Answer multiple-choice items by the log-probability per token of each option, EOS included.

    Args:
        model: A causal LM in eval mode.
        tokenizer: Its tokenizer.
        items: Rows ``{"question", "options", "answer"}``, ``answer`` an index into ``options``, of which every item
            has the same number.

    Returns:
        Share of items whose right option scores best.
    """
    examples = [encode(tokenizer, item["question"], option) for item in items for option in item["options"]]
    logps, answer_mask = answer_logps(model, examples)
    chosen = (logps.sum(1) / answer_mask.sum(1)).view(len(items), -1).argmax(1)
    return (chosen == torch.tensor([item["answer"] for item in items])).float().mean().item()
