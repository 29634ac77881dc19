"""Short ways to say what a check found."""

from collections.abc import Mapping

from lit_rlhf_callbacks.symptoms.finding import CheckResult, Severity

_NOTHING: Mapping[str, float] = {}


def passed(name: str, step: int, summary: str, measured: Mapping[str, float] = _NOTHING) -> CheckResult:
    """Say that what must hold does."""
    return CheckResult(name, "ok", step, summary, measured=dict(measured))


def failed(
    name: str,
    step: int,
    kind: str,
    cause: str,
    summary: str,
    measured: Mapping[str, float] = _NOTHING,
    severity: Severity = "critical",
) -> CheckResult:
    """Say what does not hold, and why it most likely does not."""
    return CheckResult(name, "failed", step, summary, kind, cause, severity, dict(measured))


def unknown(name: str, step: int, why: str) -> CheckResult:
    """Say what was missing."""
    return CheckResult(name, "unknown", step, f"could not be checked: {why}")
