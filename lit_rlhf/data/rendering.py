"""Texts and conversations become token ids in batches, exactly as a prompt becomes them when the model generates."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf_callbacks.errors import UserError

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_PROBE = "An answer."

Ids = list[int]
MarkedIds = tuple[Ids, list[bool]]


class Renderer:
    """A tokenizer and its chat template, used a batch at a time.

    Args:
        tokenizer: The policy's, with the chat template that is trained.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.bos_id: int | None = tokenizer.bos_token_id
        self.eos_id: int | None = tokenizer.eos_token_id
        self.num_double_bos = 0

    @cached_property
    def adds_bos(self) -> bool:
        """Whether plain text gets a BOS."""
        return self.bos_id is not None and self.texts(["a"])[0][:1] == [self.bos_id]

    @property
    def has_markers(self) -> bool:
        """Whether the template says itself which tokens the assistant generates."""
        return self.tokenizer.is_fast and _GENERATION.search(self._template()) is not None

    @cached_property
    def turn_closer(self) -> int | None:
        """The special token that ends an assistant's turn in the template; None where there is none."""
        if self.tokenizer.chat_template is None:
            return None
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": "A question."}, {"role": "assistant", "content": _PROBE}], tokenize=False
            )
        except TemplateError:
            return self.eos_id
        after = self.pieces([str(text).rpartition(_PROBE)[2]])[0]
        return next((token for token in after if token in self.special_ids), None)

    @property
    def closing_text(self) -> str | None:
        """How the turn closer is written."""
        return None if self.turn_closer is None else str(self.tokenizer.convert_ids_to_tokens(self.turn_closer))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of tokens that are not text."""
        added = self.tokenizer.added_tokens_decoder
        return frozenset([*self.tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)])

    def texts(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise texts as a prompt is, with BOS where the tokenizer adds one, and then once; without EOS."""
        if not texts:
            return []
        return [self.one_bos(self._no_eos(ids)) for ids in self.tokenizer(list(texts), **_ONLY_IDS)["input_ids"]]

    def pieces(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenise parts of a text, with nothing added."""
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, **_ONLY_IDS)["input_ids"]

    def strings(
        self, conversations: Sequence[Sequence[Message]], *, add_generation_prompt: bool = False
    ) -> list[str | RowError]:
        """Render conversations through the template; what the template refuses comes back as a bad row.

        A prompt that several completions share, the very same messages, is rendered once.
        """
        keys = [tuple(map(id, messages)) for messages in conversations]
        distinct = dict(zip(keys, conversations, strict=True))
        rendered = self._each(list(distinct.values()), add_generation_prompt=add_generation_prompt, tokenize=False)
        found = dict(zip(distinct, rendered, strict=True))
        return [found[key] for key in keys]

    def prompts(self, conversations: Sequence[Sequence[Message]]) -> list[Ids | RowError]:
        """Tokenise conversations with the generation prompt, as when the model generates."""
        texts = self.strings(conversations, add_generation_prompt=True)
        distinct = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
        ids = dict(zip(distinct, self.pieces(distinct), strict=True))
        return [self.one_bos(ids[text]) if isinstance(text, str) else text for text in texts]

    def marked(self, conversations: Sequence[Sequence[Message]]) -> list[MarkedIds | RowError]:
        """Render conversations, and say which tokens the template's own markers enclose."""
        result: list[MarkedIds | RowError] = []
        for found in self._each(conversations, tokenize=True, return_dict=True, return_assistant_tokens_mask=True):
            if isinstance(found, RowError):
                result.append(found)
            else:
                ids = self.one_bos(found["input_ids"])
                result.append((ids, [bool(inside) for inside in found["assistant_masks"][-len(ids) :]]))
        return result

    def _each(self, conversations: Sequence[Sequence[Message]], **how: Any) -> list[Any]:
        """Apply the template to a batch, and one by one where one of them makes it fail."""
        self._template()
        if not conversations:
            return []
        try:
            found: Any = self.tokenizer.apply_chat_template(list(conversations), **how)  # type: ignore[arg-type]
        except (TemplateError, TypeError) as error:  # TypeError: a template that adds None to a text
            if len(conversations) > 1:
                return [found for messages in conversations for found in self._each([messages], **how)]
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return [RowError(f"is refused by the chat template ({reason})", "correct the messages")]
        if isinstance(found, list):
            return found
        names = ("input_ids", "assistant_masks")
        return [{name: found[name][row] for name in names} for row in range(len(conversations))]

    def _template(self) -> str:
        template = self.tokenizer.chat_template
        if template is None:
            raise UserError(
                f"data: rows are conversations, but the tokenizer of '{self.tokenizer.name_or_path}' has no chat "
                "template; set data.chat_template_source to a model that has one, or write rows as plain text"
            )
        return str(self.tokenizer.get_chat_template())

    def one_bos(self, ids: Ids) -> Ids:
        """Remove, and count, a second BOS."""
        if self.bos_id is not None and ids[:2] == [self.bos_id] * 2:
            self.num_double_bos += 1
            return ids[1:]
        return ids

    def _no_eos(self, ids: Ids) -> Ids:
        return ids[:-1] if ids and ids[-1] == self.eos_id else ids


_ONLY_IDS = {"return_attention_mask": False, "return_token_type_ids": False}
