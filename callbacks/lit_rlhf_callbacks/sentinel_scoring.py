"""Scoring the options of multiple-choice items by their log-probability per token, in few bounded forwards."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.foreign_models import find_language_model, find_tokenizer
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.scoring import token_logps
from lit_rlhf_callbacks.sentinel_sets import Item
from lit_rlhf_callbacks.windows import split_by_budget

MAX_TOKENS = 8192  # padded tokens per forward
MAX_LOGITS = 2**26  # of a foreign model, which returns all of them: 256 MiB in fp32

ScoreTokens = Callable[[dict[str, Tensor]], Tensor]


class Option(NamedTuple):
    """Token ids of a question and, after the first ``num_prompt`` of them, of one of its options."""

    ids: list[int]
    num_prompt: int


class Scorer(NamedTuple):
    """What it takes to score options: a function like the protocol's ``score``, its budget, and a tokenizer."""

    score: ScoreTokens
    max_tokens: int
    tokenizer: Any


def find_scorer(trainer: Trainer, pl_module: LightningModule) -> Scorer | str:
    """Find out how to score with a module: its ``score(tokens)``, or a Hugging Face model among its attributes.

    Returns:
        The scorer, or what is missing.
    """
    run_facts = offered(pl_module, "run_facts")
    if run_facts is not None and run_facts().get("stage") == "reward_model":
        return "a reward model gives no log-probs of tokens"
    tokenizer = find_tokenizer(trainer, pl_module)
    method, model = offered(pl_module, "score", "tokens"), find_language_model(pl_module)
    if tokenizer is None or (method is None and model is None):
        return "the module has no tokenizer with score(tokens) or a Hugging Face model"
    if method is not None:
        return Scorer(method, MAX_TOKENS, tokenizer)

    def score(tokens: dict[str, Tensor]) -> Tensor:
        logits = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits  # type: ignore[misc]
        return token_logps(logits, tokens["input_ids"])

    return Scorer(score, max(1, min(MAX_TOKENS, MAX_LOGITS // len(tokenizer))), tokenizer)


def encode_item(tokenizer: Any, item: Item) -> list[Option]:
    """Tokenise a question with each of its options; the question's tokens are the same in all.

    Text gets one space before the option, unless it ends with a line break. Messages are rendered with the tokenizer's
    chat template and its generation prompt, and the option ends with the end-of-sequence token, as an answer does.

    Raises:
        UserError: Messages without a chat template.
    """
    if isinstance(item.question, str):
        question = item.question.rstrip(" ")
        gap = "" if question.endswith("\n") else " "
        return [_joined(tokenizer, question, gap + option, special=True) for option in item.options]
    if getattr(tokenizer, "chat_template", None) is None:
        raise UserError("SentinelEval.sets: a question is a list of messages, and the tokenizer has no chat template")
    prompt = tokenizer.apply_chat_template(item.question, tokenize=False, add_generation_prompt=True)
    rows = [_joined(tokenizer, prompt, option, special=False) for option in item.options]
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    return [Option(ids + end, num_prompt) for ids, num_prompt in rows]


def score_options(scorer: Scorer, options: Sequence[Option], device: torch.device, rank: int, num_ranks: int) -> Tensor:
    """Score this rank's share of the options; call it on every rank, since sharded weights need all of them.

    Options are bucketed by length into forwards of bounded size, the same whatever the number of ranks.

    Returns:
        ``[N]`` mean log-prob of each option's own tokens, in nats; 0 for options of other ranks.
    """
    scores = torch.zeros(len(options), device=device)
    parts = split_by_budget([len(option.ids) for option in options], scorer.max_tokens)
    for first in range(0, len(parts), num_ranks):
        is_mine = first + rank < len(parts)
        part = parts[first + rank] if is_mine else parts[-1]  # the others wait for this rank's collectives
        tokens = _collate([options[row] for row in part], device)
        mask = tokens["completion_mask"]
        means = (scorer.score(tokens).float() * mask).sum(-1) / mask.sum(-1)
        if is_mine:
            scores[part] = means
    return scores


def _joined(tokenizer: Any, prompt: str, option: str, special: bool) -> Option:
    """Tokenise the whole text where its tokens begin with the prompt's, else both parts by themselves."""
    prompt_ids = list(tokenizer(prompt, add_special_tokens=special)["input_ids"])
    if special and tokenizer.eos_token_id is not None and prompt_ids[-1:] == [tokenizer.eos_token_id]:
        prompt_ids.pop()  # some tokenizers end every text; this one goes on
    whole = list(tokenizer(prompt + option, add_special_tokens=special)["input_ids"])
    if special and tokenizer.eos_token_id is not None and whole[-1:] == [tokenizer.eos_token_id]:
        whole.pop()
    if len(whole) > len(prompt_ids) and whole[: len(prompt_ids)] == prompt_ids:
        return Option(whole, len(prompt_ids))
    option_ids = list(tokenizer(option, add_special_tokens=False)["input_ids"])
    return Option(prompt_ids + option_ids, len(prompt_ids))


def _collate(options: Sequence[Option], device: torch.device) -> dict[str, Tensor]:
    """Pad on the right, which causal attention never sees; a first token has nothing before it and never counts."""
    width = max(len(option.ids) for option in options)
    input_ids = torch.zeros(len(options), width, dtype=torch.long)
    completion_mask = torch.zeros(len(options), width, dtype=torch.bool)
    attention_mask = torch.zeros(len(options), width, dtype=torch.long)
    for row, (ids, num_prompt) in enumerate(options):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        attention_mask[row, : len(ids)] = 1
        completion_mask[row, max(1, num_prompt) : len(ids)] = True
    tensors = {"input_ids": input_ids, "attention_mask": attention_mask, "completion_mask": completion_mask}
    return {name: tensor.to(device) for name, tensor in tensors.items()}
