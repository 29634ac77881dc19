"""``python -m lit_rlhf inspect``: see what a run would train on, token by token, before it costs anything."""

from argparse import ArgumentParser
from collections.abc import Sequence

from jsonargparse import set_parsing_settings
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table

from lit_rlhf.algorithms.online import OnlineAlgorithm
from lit_rlhf.cli.arguments import read_arguments
from lit_rlhf.cli.lightning_cli import LitRLHFCLI
from lit_rlhf.cli.quiet import quiet
from lit_rlhf.commands import inspect_prompts
from lit_rlhf.data.offline import OfflineData
from lit_rlhf.data.preflight import preflight, show_example
from lit_rlhf_callbacks.errors import UserError

# A config for GPUs can be inspected anywhere.
ANYWHERE = [
    "--trainer.accelerator=cpu",
    "--trainer.devices=1",
    "--trainer.strategy=auto",
    "--trainer.precision=32-true",
]


class InspectCLI(LitRLHFCLI):
    """Parses what ``fit`` parses, and looks at the data instead of training.

    Args:
        args: As of ``fit``.
        num_shown: How many examples to spell out.
    """

    def __init__(self, args: Sequence[str], num_shown: int) -> None:
        self.num_shown = num_shown
        super().__init__(args)

    def _run_subcommand(self, subcommand: str) -> None:
        data, model = self.datamodule, self.model
        data.setup("fit")
        if isinstance(model, OnlineAlgorithm):
            inspect_prompts.report(data, model, self.num_shown)
            return
        if not isinstance(data, OfflineData):
            raise UserError(
                f"data: {type(model).__name__} learns from rows; take SupervisedData, PreferenceData or StepwiseData, "
                f"not {type(data).__name__}"
            )
        backbone = model.backbone
        data.tokenise(
            backbone.tokenizer, kind=getattr(model, "data_kind", None), context_length=backbone.context_length
        )
        report(data, backbone.eos_ids, self.num_shown)


def report(data: OfflineData, eos_ids: Sequence[int], num_shown: int) -> None:
    """Print what preflight finds: a table, examples with their masks, warnings.

    Args:
        data: Set up and tokenised.
        eos_ids: Tokens that end generation.
        num_shown: How many examples to spell out.

    Raises:
        UserError: If nothing would be learned.
    """
    console, found = Console(), preflight(data, eos_ids)
    table = Table(show_header=False, box=None, pad_edge=False)
    updates = data.train_dataloader().num_windows
    held_out = f"{data.tallies['eval'].num_examples} examples"
    for name, value in {**found.facts, "updates per epoch": str(updates), "held out": held_out}.items():
        table.add_row(name, value)
    console.print(table)
    for example in data.train_examples[:num_shown]:
        label = f", label {example.label:g}" if example.label is not None else ""
        labels = "".join(f", {label:g}" for _, label in example.steps)
        title = f"{data.where(example.row)}{label}{', steps' + labels if labels else ''}: ⟦ ⟧ counts in the loss"
        console.print(Panel(Group(*show_example(example, data.renderer)), title=title, title_align="left"))
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    if found.refusals:
        raise UserError(found.refusals[0])


def main(args: Sequence[str]) -> None:
    """Show a config's data.

    Args:
        args: ``inspect``, then what ``fit`` takes.
    """
    parser = ArgumentParser(
        "python -m lit_rlhf inspect",
        description="Read and tokenise a config's data, and show counts, masks and what would go wrong; of RL, prompts "
        "and what the reward functions say to known answers. "
        "Takes every flag of fit, such as --config sft and --data.train FILE.",
    )
    parser.add_argument("--show", type=int, default=1, help="how many examples to spell out (%(default)s)")
    options, rest = parser.parse_known_args(args[1:])
    quiet()
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    found, _ = read_arguments(["fit", *rest])
    InspectCLI([*found, *ANYWHERE], options.show)
