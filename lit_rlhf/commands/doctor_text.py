"""How the ``doctor`` command says what it found, and what it could not look at."""

from dataclasses import asdict
from typing import Any

from lit_rlhf_callbacks.finding_text import describe, describe_all
from lit_rlhf_callbacks.run_log import RunLog
from lit_rlhf_callbacks.symptoms.coverage import ENOUGH, armed_families, out_of_reach
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import SEVERITIES, Finding


def exit_status(diagnosis: Diagnosis, fail_on: str | None) -> int:
    """Return 1 for a warning that still holds and 3 for a critical finding, from severity ``fail_on`` on; else 0."""
    gravest = max((SEVERITIES.index(finding.severity) for finding in diagnosis.active()), default=0)
    if fail_on is None or gravest < SEVERITIES.index(fail_on):
        return 0
    return 3 if SEVERITIES[gravest] == "critical" else 1


def as_text(name: str, log: RunLog, diagnosis: Diagnosis) -> str:
    """Spell everything out, roots first."""
    steps = [step for step, _ in log.rows]
    algorithm = f", {log.facts['algorithm']}" if log.facts.get("algorithm") else ""
    span = f"updates {steps[0]} to {steps[-1]}" if steps else "no updates"
    active = diagnosis.active()
    over = _over(diagnosis)
    parts = [f"{name}: {len(steps)} rows, {span}{algorithm}"]
    parts += [] if any(finding.severity != "info" for finding in active) else ["No finding."]
    parts += [describe_all(active)] if active else []
    parts += ["\n".join(describe(finding) for finding in over)] if over else []
    parts.append("\n".join(_coverage(log, diagnosis)))
    return "\n\n".join(parts)


def as_record(log: RunLog, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the same as plain data."""
    return {
        "num_rows": len(log.rows),
        "facts": log.facts,
        "findings": [asdict(finding) for finding in [*diagnosis.active(), *_over(diagnosis)]],
        "checks": [asdict(result) for result in diagnosis.checks.values()],
        "armed": {rule.__name__: diagnosis.armed.get(rule.__name__, 0) for rule in diagnosis.rules},
        "missing": out_of_reach(diagnosis),
        "notes": log.notes,
    }


def _over(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings.values() if not finding.is_active]


def _coverage(log: RunLog, diagnosis: Diagnosis) -> list[str]:
    """Say what was looked at, so that silence can be read."""
    shown = [
        f"{family} {max(rows)} rows ({sum(n > 0 for n in rows)} of {len(rows)} rules)"
        for family, rows in armed_families(diagnosis).items()
        if any(rows)
    ]
    lines = [f"looked at: {', '.join(shown) or 'nothing'}"]
    if len(log.rows) < ENOUGH:
        lines.append(
            f"too few rows: a lasting change can be told from noise after {ENOUGH}, and here are {len(log.rows)}; "
            "only what is plain from single rows was looked for"
        )
    if missing := [f"{rule} (no {', '.join(names)})" for rule, names in out_of_reach(diagnosis).items()]:
        lines.append(f"could not be checked: {'; '.join(missing)}")
    results = list(diagnosis.checks.values())
    if results:
        counts = {status: sum(result.status == status for result in results) for status in ("ok", "failed", "unknown")}
        unknown = "; ".join(f"{each.name} ({each.summary})" for each in results if each.status == "unknown")
        told = f": {unknown}" if unknown else ""
        lines.append(
            f"exact checks: {counts['ok']} passed, {counts['failed']} failed, {counts['unknown']} not possible{told}"
        )
    lines += [f"the rule {name} failed: {reason}" for name, reason in diagnosis.take_broken()]
    return lines + log.notes
