"""Read a recording again through the rules, as the ``doctor`` command would."""

from dataclasses import dataclass, field

from fault import read

from lit_rlhf_callbacks.symptoms import KINDS, RULES
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import CheckResult, Finding

GRAVE = ("warn", "critical")


@dataclass
class Result:
    """What the doctor said about a recording.

    Args:
        recording: With its rows.
        said: Every finding at each change of state, in order.
    """

    recording: dict
    said: list[Finding] = field(default_factory=list)
    final: dict[str, Finding] = field(default_factory=dict)

    @property
    def warnings(self):
        """First word of each kind that was ever a warning or worse."""
        first = {}
        for finding in self.said:
            if finding.severity in GRAVE:
                first.setdefault(finding.kind, finding)
        return first

    @property
    def named(self):
        """The first finding that is of an expected kind with the true cause first or second; None: missed."""
        for finding in self.said:
            expected = finding.kind in self.recording["kinds"] and finding.severity in GRAVE
            if expected and set(self.recording["causes"]) & {cause.id for cause in finding.causes[:2]}:
                return finding
        return None

    @property
    def kind_named(self):
        """The first finding of an expected kind, whatever its causes."""
        grave = (finding for finding in self.said if finding.severity in GRAVE)
        return next((finding for finding in grave if finding.kind in self.recording["kinds"]), None)

    @property
    def early(self):
        """Warnings from before the fault."""
        at = self.recording["at"]
        return [kind for kind, finding in self.warnings.items() if finding.raised <= at]


def replay(path, every=1, rules=RULES):
    """Feed a recording's checks and rows to a fresh diagnosis.

    Args:
        path: The recording.
        every: Keep each ``every``-th row only, as a sparser log would.
        rules: Which rules to run.
    """
    recording = read(path)
    diagnosis = Diagnosis(rules, KINDS, recording["facts"])
    result = Result(recording)
    checks = [CheckResult(**check) for check in recording["checks"]]
    rows = [(step, row) for step, row in recording["rows"] if step % every == 0]
    for step, row in rows:
        while checks and checks[0].step <= step:
            result.said += diagnosis.add_check(checks.pop(0))
        result.said += diagnosis.add_row(step, row)
    for check in checks:
        result.said += diagnosis.add_check(check)
    result.final = diagnosis.findings
    return result
