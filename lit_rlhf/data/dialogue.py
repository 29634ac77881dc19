"""Conversations with what of them is to be learned, and what tokenising makes of them."""

from typing import NamedTuple

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf.data.samples import Sample


class NotPrefixError(RowError):
    """The template renders the prompt differently by itself and in the whole, so no mask can be trusted."""

    def __init__(self) -> None:
        super().__init__("is rendered differently by itself and with what follows", "see data.mask")


class Encoded(NamedTuple):
    """Tokenised rows."""

    samples: list[Sample | RowError]
    """A sample for each, or what is wrong with it."""
    num_apart: int
    """How many had to be tokenised in parts, since a prompt's last token would have merged with what follows."""


class Dialogue(NamedTuple):
    """A conversation and what of it is to be learned."""

    messages: list[Message]
    first: int = 0
    """The assistant's messages from this one on count."""
    all_tokens: bool = False
    """Every token counts."""

    def turns(self) -> list[int]:
        """Numbers of the messages that count."""
        return [n for n in range(self.first, len(self.messages)) if self.messages[n]["role"] == "assistant"]


def all_of(ids: list[int]) -> Sample:
    """Make a sample in which every token counts but the first, which nothing predicts."""
    return Sample(ids, [place > 0 for place in range(len(ids))], 0)
