"""From a prompt as users write it to the tokens a model is conditioned on."""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from lit_rlhf_callbacks.errors import UserError

Message = dict[str, str]
PromptLike = str | Sequence[Message]


def render_prompt(tokenizer: PreTrainedTokenizerBase, prompt: PromptLike, where: str) -> list[int]:
    """Turn one prompt into token ids, ready for the first token of the completion.

    Text is tokenised as it is; messages go through the tokenizer's chat template with its generation prompt.

    Args:
        tokenizer: The policy's tokenizer.
        prompt: Raw text, or messages ``[{"role": ..., "content": ...}]``.
        where: How to call this prompt in an error, for example ``"train.jsonl, row 7"``.

    Returns:
        The prompt's token ids.

    Raises:
        UserError: If the prompt is empty or no prompt at all, or is a conversation that the tokenizer's chat template
            refuses or that it has no template for.
    """
    if isinstance(prompt, str):
        ids = list(tokenizer(prompt)["input_ids"])
    elif tokenizer.chat_template is None:
        raise UserError(
            f"{where}: the prompt is a conversation, but the tokenizer of '{tokenizer.name_or_path}' has no chat "
            "template; write the prompt as plain text or use a model with a template"
        )
    else:
        ids = _apply_template(tokenizer, prompt, where)
    if not ids:
        raise UserError(f"{where}: the prompt is empty; give it at least one token")
    return ids


def _apply_template(tokenizer: PreTrainedTokenizerBase, prompt: Any, where: str) -> list[int]:
    is_list = isinstance(prompt, list | tuple) and len(prompt) > 0
    if not is_list or not all(isinstance(message, dict) and "role" in message for message in prompt):
        raise UserError(
            f'{where}: a prompt is text, or a list of messages {{"role": "user", "content": "..."}}; got '
            f"{str(prompt)[:60]!r}"
        )
    try:
        # return_dict must be said: what comes back without it changed between versions
        rendered: Any = tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, tokenize=True, return_dict=True
        )
    except TemplateError as error:
        raise UserError(f"{where}: the model's chat template refuses the prompt ({error})") from error
    return list(rendered["input_ids"])


def as_completion(prompt: PromptLike, text: str) -> str | list[Message]:
    """Wrap a completion's text the way its prompt was written, as TRL hands it to reward functions.

    >>> as_completion("1 + 1 =", "2")
    '2'
    >>> as_completion([{"role": "user", "content": "1 + 1 ="}], "2")
    [{'role': 'assistant', 'content': '2'}]
    """
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
