"""Read a recording again through the rules, as the ``doctor`` command reads a run directory."""

import gzip
import json
from dataclasses import dataclass, field

import offline_faults
import rl_faults

from lit_rlhf_callbacks.replay import replay as replay_log
from lit_rlhf_callbacks.run_log import RunLog, add_record
from lit_rlhf_callbacks.symptoms.finding import Finding

GRAVE = ("warn", "critical")
FAULTS = {(fault.name, fault.config): fault for fault in [*rl_faults.FAULTS, *offline_faults.FAULTS]}


def read(path):
    """Return what a recording says of its fault, and its log."""
    with gzip.open(path) as file:
        recording = json.loads(file.read())
    fault = FAULTS.get((recording["fault"].removeprefix("long_"), recording["config"]))
    recording |= {"kinds": fault.kinds if fault else (), "causes": fault.causes if fault else ()}  # none: healthy
    columns = recording.pop("columns")
    rows = []
    for place, step in enumerate(columns["global_step"]):
        cells = {name: values[place] for name, values in columns.items() if name != "global_step"}
        rows.append((int(step), {name: float(cell) for name, cell in cells.items() if cell is not None}))
    log = RunLog(rows, {})
    for record in recording.pop("checks"):
        add_record(log, record)
    return recording, log


@dataclass
class Result:
    """What the doctor said about a recording.

    Args:
        recording: What is wrong with it, and since when.
        said: Every finding at each change of state, in order.
        armed: Rows in which each rule could look at what it needs.
    """

    recording: dict
    said: list[Finding] = field(default_factory=list)
    armed: dict[str, int] = field(default_factory=dict)

    @property
    def warnings(self):
        """The first time that each kind was a warning or worse."""
        first = {}
        for finding in self.said:
            if finding.severity in GRAVE:
                first.setdefault(finding.kind, finding)
        return first

    @property
    def kind_named(self):
        """The first finding of an expected kind, whatever its causes; None: missed."""
        grave = (finding for finding in self.said if finding.severity in GRAVE)
        return next((finding for finding in grave if finding.kind in self.recording["kinds"]), None)

    @property
    def named(self):
        """The first such finding whose first or second cause is the true one; None: missed."""
        causes = set(self.recording["causes"])
        for finding in self.said:
            is_expected = finding.kind in self.recording["kinds"] and finding.severity in GRAVE
            if is_expected and causes & {cause.id for cause in finding.causes[:2]}:
                return finding
        return None

    @property
    def early(self):
        """Warnings from before the fault."""
        return [kind for kind, finding in self.warnings.items() if finding.step < self.recording["at"]]


def replay(path, every=1):
    """Diagnose a recording.

    Args:
        path: The recording.
        every: Keep each ``every``-th row only, as a sparser log would.
    """
    recording, log = read(path)
    log.rows = [(step, row) for step, row in log.rows if step % every == 0]
    diagnosis, said = replay_log(log)
    return Result(recording, said, diagnosis.armed)
