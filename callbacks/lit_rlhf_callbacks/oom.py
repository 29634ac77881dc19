"""Running out of memory: telling it from other errors, and what a batch of some size needs from then on."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning.pytorch.utilities.memory import is_oom_error

T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory was not enough, on whatever device."""
    return isinstance(error, torch.OutOfMemoryError) or is_oom_error(error)


def unless_out_of_memory(call: Callable[[], T]) -> tuple[T | None, bool]:
    """Call a function; running out of memory in it is no error but an answer.

    The error is dropped here: its traceback holds the frames of the failed computation, and with them its activations.

    Returns:
        The function's value and True, or None and False.
    """
    try:
        return call(), True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None, False


class MemoryLimit:
    """The padded tokens that one forward and backward may hold, learned from what fitted and what did not."""

    def __init__(self) -> None:
        self.max_tokens: int | None = None
        self._fitted = 0

    def allows(self, tokens: int) -> bool:
        """Tell whether a batch may be tried whole."""
        return self.max_tokens is None or tokens <= self.max_tokens

    def note_fit(self, tokens: int) -> None:
        """Remember a batch that went through, forward and backward."""
        self._fitted = max(self._fitted, tokens)

    def note_failure(self, tokens: int) -> None:
        """Lower the limit: to what fitted, or to half of what did not."""
        best = self._fitted if self._fitted < tokens else 0
        self.max_tokens = max(tokens // 2, best, 1)
        self._fitted = 0  # memory has become scarcer since, or it would have fitted again

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"max_tokens": self.max_tokens}
