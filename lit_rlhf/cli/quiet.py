"""What is left out of the terminal: lines of other libraries that tell a reader of this run nothing.

Each filter names one message; nothing is silenced by level.
"""

import logging
import warnings
from pathlib import Path

from transformers.utils import logging as transformers_logging

_WARNINGS = [
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 under torch 2.13
    r"Found \d+ module\(s\) in eval mode",  # the frozen reference is meant to be
    r"The '\w+_dataloader' does not have many workers",  # prompts are rows of text; workers would only cost
    r"Checkpoint directory .* exists and is not empty",  # so it is on every resume
    r"It is recommended to use `self\.log\(.*sync_dist=True",  # an algorithm logs values that are reduced already
]
_TIPS = ("litlogger", "litmodels", "TPU available")


OURS = ("lit_rlhf", "lit_rlhf_callbacks")
_format_others = warnings.formatwarning


class _NoTips(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not any(tip in record.getMessage() for tip in _TIPS)


_NO_TIPS = _NoTips()


def quiet() -> None:
    """Leave out what is known to be beside the point. Calling it twice changes nothing."""
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # jsonargparse announces the end of calls that Lightning 2.6 makes; our dependencies stay below that version
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"lightning\.pytorch\.cli")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_NO_TIPS)
    transformers_logging.disable_progress_bar()  # one bar per load and save, for seconds of work
    warnings.formatwarning = _format_warning


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Print our own warnings as the sentence they are; which line of the package wrote it helps nobody."""
    if any(folder in OURS for folder in Path(filename).parts):
        return f"warning: {message}\n"
    return _format_others(message, category, filename, lineno, line)
