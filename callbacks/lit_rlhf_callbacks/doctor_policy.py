"""What to do about findings: a setting of `RunDoctor`, checked when it is given."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, get_args

from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.symptoms import KINDS

Action = Literal["ignore", "warn", "stop"]


def as_actions(on_finding: Action | Mapping[str, Action]) -> dict[str, Action]:
    """Return what to do about each kind that was named, and under ``"*"`` about the others.

    Raises:
        UserError: If a kind or an action does not exist.
    """
    actions: dict[str, Action] = {"*": "warn"}
    actions |= {"*": on_finding} if isinstance(on_finding, str) else on_finding
    for kind, action in actions.items():
        if action not in get_args(Action):
            raise UserError(f"RunDoctor on_finding: '{action}' is no action; there are: {', '.join(get_args(Action))}")
        if kind != "*" and kind not in KINDS:
            close = get_close_matches(kind, KINDS, n=1)
            meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(KINDS)}"
            raise UserError(f"RunDoctor on_finding: no kind of finding is called '{kind}'; {meant}")
    return actions
