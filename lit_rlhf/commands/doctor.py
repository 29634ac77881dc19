"""``python -m lit_rlhf doctor``: what was wrong with a run, from what it has left behind."""

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """Replays a run's metrics and exact checks through the rules that RunDoctor uses while training.

Reads a run directory, or a log of TRL, verl or OpenRLHF: .csv, .jsonl, trainer_state.json, an export of Weights &
Biases, a TensorBoard event file. Exit status: 0; with --fail-on 1 when the gravest finding that still holds is a
warning, 3 when it is critical; 2 when something cannot be read."""


def main(args: Sequence[str]) -> None:
    """Print the findings of a run.

    Args:
        args: ``doctor``, then the run.

    Raises:
        SystemExit: With status 1 or 3, where ``--fail-on`` asks for it.
    """
    parser = ArgumentParser(
        "python -m lit_rlhf doctor", description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="a run directory, or another trainer's log")
    parser.add_argument("--log", type=Path, help="a log of another trainer")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--fail-on", choices=["warn", "critical"], help="the severity from which on to fail")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    options = parser.parse_args(args[1:])
    path = options.log or options.run
    if path is None or (options.log and options.run):
        parser.error("give a run directory or a log, one of them")

    # only now: --help needs none of it
    from lit_rlhf.commands.doctor_text import as_record, as_text, exit_status
    from lit_rlhf_callbacks.foreign_logs import read_log
    from lit_rlhf_callbacks.replay import replay
    from lit_rlhf_callbacks.run_log import read_run_dir

    state = path / "trainer_state.json"
    if path.is_dir() and not (path / "metrics.csv").exists() and state.exists():
        path = state
    log = read_run_dir(path) if path.is_dir() else read_log(path)
    if path.is_dir() and (path / "config.yaml").is_file():
        from lit_rlhf.commands.doctor_config import config_facts

        log.facts = config_facts(path / "config.yaml") | log.facts
    diagnosis, _ = replay(log)
    if options.json:
        print(json.dumps(as_record(log, diagnosis), indent=2, ensure_ascii=False))
    else:
        print(as_text(str(path), log, diagnosis))
    if status := exit_status(diagnosis, options.fail_on):
        raise SystemExit(status)
