"""``python -m lit_rlhf``: a table of commands, and each command's module imported only when it is run.

No class is defined here: jsonargparse could not resolve it.
"""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from lit_rlhf import __version__
from lit_rlhf.commands import COMMANDS


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and turn what ends it early into a line and an exit status.

    Args:
        args: The command and its flags; None takes the process's own.

    Raises:
        SystemExit: With status 2 for what the user can put right, 3 for a run that a callback has stopped, 130 after
            Ctrl-C.
    """
    args = list(sys.argv[1:] if args is None else args)
    if not args or args[0] in ("-h", "--help"):
        print(_table())
        return
    if args[0] == "--version":
        print(__version__)
        return
    if args[0] not in COMMANDS:
        close = get_close_matches(args[0], COMMANDS, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(COMMANDS)}"
        _stop(f"no command {args[0]}; {meant}", 2)
    debug = "--debug" in args
    if not {"", os.getcwd()} & set(sys.path):  # a user's own classes lie here; `python -m` sees them, a script does not
        sys.path.insert(0, os.getcwd())
    try:
        import_module(COMMANDS[args[0]].module).main(args)
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning's trainer ends with 1 after Ctrl-C
            raise SystemExit(130) from None
        raise
    except Exception as error:
        if debug or not _is_the_users(error):
            raise
        _stop(f"{error}", 3 if _is_a_stop(error) else 2)


def _is_the_users(error: Exception) -> bool:
    """Tell whether the message alone says what to do: ours do, and Lightning's about a wrong combination of flags."""
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    return isinstance(error, MisconfigurationException)


def _is_a_stop(error: Exception) -> bool:
    from lit_rlhf_callbacks.errors import RunStoppedError

    return isinstance(error, RunStoppedError)


def _stop(message: str, status: int) -> None:
    print(f"lit_rlhf: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(status)


def _table() -> str:
    rows = "\n".join(f"  {name:<12}{command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: python -m lit_rlhf COMMAND ...\n\n"
        f"{rows}\n\n"
        "python -m lit_rlhf COMMAND --help says what a command takes.\n"
        "To see something learn: python -m lit_rlhf fit --config grpo"
    )


if __name__ == "__main__":
    main()
