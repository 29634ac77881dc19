"""How callbacks find out what a module offers (``callbacks/README.md``): by name and parameters, never by class."""

import inspect
from collections.abc import Callable
from typing import Any


def offered(owner: object, name: str, *parameters: str) -> Callable[..., Any] | None:
    """Return an optional method, if its owner has it with these parameters.

    A method of the same name that takes something else (``generate`` of a Hugging Face model, for one) is not meant.

    Args:
        owner: A module, or whatever might have the method.
        name: The method.
        parameters: Names that its signature must contain.

    Returns:
        The bound method, or None.

    Example:
        >>> class Module:
        ...     def score(self, tokens): ...
        >>> offered(Module(), "score", "tokens") is not None, offered(Module(), "score", "texts"), offered(3, "score")
        (True, None, None)
    """
    method = getattr(owner, name, None)
    if not callable(method) or not set(parameters) <= set(inspect.signature(method).parameters):
        return None
    return method
