"""The commands of ``python -m lit_rlhf``. Each one's module has ``main(args)``; ``args[0]`` is the command's name."""

from typing import NamedTuple


class Command(NamedTuple):
    """Where a command lives, and what the table says of it."""

    module: str
    summary: str


COMMANDS = {
    "fit": Command("lit_rlhf.cli", "Train: any algorithm, any model, from a config and flags on top."),
    "validate": Command("lit_rlhf.cli", "Evaluate a model or a checkpoint on held-out prompts."),
    "chat": Command("lit_rlhf.commands.chat", "Talk to a model or to what a run has trained."),
    "best-of-n": Command("lit_rlhf.commands.best_of_n", "See what choosing by score buys, from scored completions."),
    "inspect": Command("lit_rlhf.commands.inspect", "See what a run would train on: counts, masks, stop tokens."),
    "doctor": Command("lit_rlhf.commands.doctor", "See what went wrong in a run, since when, and why; any trainer's."),
    "report": Command("lit_rlhf.commands.report", "Write a run, or several laid over one another, as one HTML page."),
    "convert": Command("lit_rlhf.commands.convert", "Turn a GGUF file into a Hugging Face folder that can be trained."),
}
