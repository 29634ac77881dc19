"""``python -m lit_rlhf report``: one or several runs as one HTML page, for a browser, a phone or a printer."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """Writes one HTML file that needs nothing else: curves over updates or hours, what RunDoctor found
and when it began, sentinels, samples of the same prompts side by side, settings that differ, the run's record.

Several runs are laid over one another; the first is what the others are compared with."""


def main(args: Sequence[str]) -> None:
    """Write a report and print where it is.

    Args:
        args: ``report``, then run directories.
    """
    parser = ArgumentParser(
        "python -m lit_rlhf report", description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="a run directory, such as runs/<name>")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the file to write (%(default)s)")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    options = parser.parse_args(args[1:])

    # only now: --help needs none of it
    from lit_rlhf.report.page import page
    from lit_rlhf.report.read import read_runs

    text = page(read_runs(options.runs))
    try:
        options.out.write_text(text, encoding="utf-8")
    except OSError as error:
        from lit_rlhf_callbacks.errors import UserError  # it imports lightning

        raise UserError(
            f"report: cannot write {options.out} ({error.strerror}); give another file with --out"
        ) from None
    print(options.out)
