"""The one exception a user is meant to read."""

from lightning.pytorch.utilities.exceptions import MisconfigurationException


class UserError(MisconfigurationException):
    """Something the user can put right; its message is one line: what is wrong, where, what to do.

    The command line prints just that line and exits with status 2.
    """


class RunStoppedError(UserError):
    """A callback ended the run because of what it saw; the message says what, and where to go on from.

    The command line prints just that line and exits with status 3.
    """
