"""What `RunDoctor` tells, and to whom: ``findings.jsonl``, ``checks.jsonl``, the console, a hook."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lit_rlhf_callbacks.append_only import JsonLines
from lit_rlhf_callbacks.doctor_facts import Facts
from lit_rlhf_callbacks.doctor_policy import Action
from lit_rlhf_callbacks.finding_hook import FindingHook
from lit_rlhf_callbacks.finding_text import describe
from lit_rlhf_callbacks.symptoms.finding import CheckResult, Finding


class Report:
    """Write and print on rank 0; the other ranks know the same and keep quiet.

    Args:
        folder: The run directory.
        actions: What to do about each kind; ``"*"`` is what to do about the others.
        hook: Whom else to tell.
        is_global_zero: Whether this process is rank 0.
    """

    def __init__(
        self, folder: Path, actions: Mapping[str, Action], hook: FindingHook | None, is_global_zero: bool
    ) -> None:
        self.actions, self.hook, self.is_global_zero = actions, hook, is_global_zero
        self.checks = JsonLines(folder / "checks.jsonl")
        self.findings = JsonLines(folder / "findings.jsonl")

    def action(self, finding: Finding) -> Action:
        """Return what to do about a finding."""
        return self.actions.get(finding.kind, self.actions["*"])

    def tell_facts(self, step: int, facts: Facts, *, resumed: bool = False) -> None:
        """Write what is known of the run from update ``step`` on; a later line adds to the earlier ones."""
        if self.is_global_zero:
            self.checks.append({"step": step, "facts": facts} | ({"resumed": True} if resumed else {}))

    def tell_check(self, result: CheckResult) -> None:
        """Write what an exact check found."""
        if self.is_global_zero:
            self.checks.append(asdict(result))

    def tell(self, findings: Iterable[Finding], hours: float) -> None:
        """Write, print and pass on findings that are new or have changed."""
        for finding in findings:
            if not self.is_global_zero or self.action(finding) == "ignore":
                continue
            record: dict[str, Any] = asdict(finding) | {"hours": hours}
            self.findings.append(record)
            print(f"RunDoctor, {describe(finding)}", flush=True)
            if self.hook is not None:
                self.hook.send(json.dumps(record, ensure_ascii=False))

    def go_on_from(self, step: int, known: Iterable[Finding]) -> None:
        """Move aside what was written after update ``step``, which is where ``known`` stands."""
        if not self.is_global_zero:
            return
        self.checks.discard_after(step)
        self.findings.discard_after(step - 1)  # rows are read after their update's checkpoint, checks before it
        for finding in known:
            if finding.step >= step and self.action(finding) != "ignore":
                self.findings.append(asdict(finding))
