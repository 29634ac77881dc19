"""Taking one value out of a row: what is not as it must be is said of that column."""

import math
from collections.abc import Sequence
from typing import Any

from lit_rlhf.data.bad_rows import RowError
from lit_rlhf.data.chat import Message
from lit_rlhf.data.files import MAX_ROW_BYTES, Row

ROLES = ("system", "developer", "user", "assistant", "tool")
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
Turns = str | list[Message]


def value_of(row: Row, column: str) -> Any:
    """Return a column's value.

    Raises:
        RowError: If the column is missing or null.
    """
    if column not in row:
        raise RowError("is missing", f"the row has {', '.join(map(str, row)) or 'no columns'}: add it", column)
    if row[column] is None:
        raise RowError("is null", "give it a value or remove the row", column)
    return row[column]


def text_of(value: Any, column: str) -> str:
    """Return a text that is one.

    Raises:
        RowError: If it is of another type, blank, too long, or not valid Unicode.
    """
    if not isinstance(value, str):
        raise _wrong_type(value, "text", column)
    if not value.strip():
        raise RowError("is empty", "give it a text or remove the row", column)
    if len(value) > MAX_ROW_BYTES:
        raise RowError(f"is longer than {MAX_ROW_BYTES // 1_000_000} MB", "split or remove it", column)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError("is not valid Unicode", "it holds half of a surrogate pair: write it again", column) from error
    return value


def messages_of(value: Any, column: str) -> list[Message]:
    """Return a conversation: messages with a role and a text, ShareGPT's ``from`` and ``value`` renamed.

    Raises:
        RowError: If it is none.
    """
    if not isinstance(value, list):
        raise _wrong_type(value, "a list of messages", column)
    if not value:
        raise RowError("is empty", "give it a message or remove the row", column)
    return [_message(message, f"{column}[{place}]") for place, message in enumerate(value)]


def turns_of(value: Any, column: str) -> Turns:
    """Return a text or a conversation."""
    return messages_of(value, column) if isinstance(value, list) else text_of(value, column)


def number_of(value: Any, column: str) -> float:
    """Return a finite number.

    Raises:
        RowError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(value, "a number", column)
    if not math.isfinite(value):
        raise RowError("is not a finite number", "correct it or remove the row", column)
    return float(value)


def truth_of(value: Any, column: str) -> bool:
    """Return a truth value, also one written as 0 or 1.

    Raises:
        RowError: If it is none.
    """
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        raise _wrong_type(value, "true or false", column)
    if value not in (0, 1):
        raise RowError("is neither true nor false", "write true or false", column)
    return bool(value)


def list_of(value: Any, column: str, at_least: int) -> Sequence[Any]:
    """Return a list of at least so many.

    Raises:
        RowError: If it is none, or shorter.
    """
    if not isinstance(value, list):
        raise _wrong_type(value, "a list", column)
    if len(value) < at_least:
        raise RowError(f"has fewer than {at_least} entries", "add to it or remove the row", column)
    return value


def _message(value: Any, column: str) -> Message:
    if not isinstance(value, dict):
        raise _wrong_type(value, "a message with role and content", column)
    if "role" not in value and "from" in value:
        value = {"role": value["from"], "content": value.get("value")}
    role = value.get("role")
    role = _OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise RowError("has an unknown role", f"the role is one of {', '.join(ROLES)}", f"{column}.role")
    content = f"{column}.content"
    if value.get("content") is None:
        raise RowError("is missing or null", "give the message a text", content)
    if role in ("user", "assistant"):
        text_of(value["content"], content)
    elif not isinstance(value["content"], str):
        raise _wrong_type(value["content"], "text", content)
    return {**value, "role": role}


def _wrong_type(value: Any, wanted: str, column: str) -> RowError:
    names = {"str": "text", "int": "a number", "float": "a number", "list": "a list", "dict": "an object"}
    found = "true or false" if isinstance(value, bool) else names.get(type(value).__name__, type(value).__name__)
    return RowError(f"is {found}", f"it must be {wanted}", column)
