"""A run's findings, once more, from what it has left behind."""

from dataclasses import replace

from lit_rlhf_callbacks.run_log import RunLog
from lit_rlhf_callbacks.symptoms import KINDS, RULES
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import Finding


def replay(log: RunLog) -> tuple[Diagnosis, list[Finding]]:
    """Feed a log to the rules in the order of the run.

    Returns:
        The diagnosis as it stands at the end, and every change of state on the way.
    """
    diagnosis = Diagnosis(RULES, KINDS, log.facts)
    changes: list[Finding] = []
    waiting = iter([*log.rows, None])
    row = next(waiting)

    def feed_until(step: float) -> None:
        nonlocal row
        while row is not None and row[0] <= step:
            changes.extend(diagnosis.add_row(*row))
            row = next(waiting)

    for event in log.events:
        if isinstance(event, int):  # a resume: the row of that update belongs to what came before
            feed_until(event)
            diagnosis.anchor(event)
        else:
            feed_until(event.step - 1)
            changes += diagnosis.add_check(event)
    feed_until(float("inf"))
    for kind, finding in diagnosis.findings.items():
        before = [saved for saved in log.checkpoints if saved < max(1, finding.onset[0])]
        good = log.checkpoints[max(before)] if before else None
        diagnosis.findings[kind] = replace(finding, last_good_checkpoint=good)
    return diagnosis, changes
