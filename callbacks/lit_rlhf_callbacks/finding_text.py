"""A finding as a few lines of plain text, for the console and the command."""

from collections.abc import Iterable, Sequence

from lit_rlhf_callbacks.symptoms.finding import Finding, RankedCause

NUM_CAUSES = 2


def describe(finding: Finding) -> str:
    """Spell a finding out; a consequence, what is only for information and what is over take one line."""
    name = f"{finding.title} ({finding.kind})"
    if finding.state in ("recovered", "closed"):
        return f"update {finding.step}: {finding.state}: {name}"
    if finding.explained_by is not None:
        return f"update {finding.step}: {name}, a consequence of {finding.explained_by}: {finding.summary}"
    if finding.severity == "info":
        return f"update {finding.step}: for information: {name}: {finding.summary}"
    lines = [f"update {finding.step}: {finding.severity.upper()}: {name}", finding.summary, _began(finding)]
    num_causes = 1 if finding.state == "worse" else NUM_CAUSES  # the rest was said when it was raised
    for number, cause in enumerate(finding.causes[:num_causes], start=1):
        lines += _cause(number, cause)
    if finding.sample_ids:
        lines.append(f"look at prompts: {', '.join(map(str, finding.sample_ids))}")
    if finding.unchecked:
        lines.append(f"could not be checked: {'; '.join(finding.unchecked)}")
    if finding.last_good_checkpoint is not None:
        lines.append(f"last checkpoint from before: {finding.last_good_checkpoint}")
    return "\n  ".join([*lines, f"see {finding.link}"])


def describe_all(findings: Sequence[Finding]) -> str:
    """Spell findings out, roots first, each with its consequences beneath."""
    kinds = {finding.kind for finding in findings}
    roots = [finding for finding in findings if finding.explained_by not in kinds]
    return "\n\n".join("\n".join([describe(root), *_beneath(root, findings)]) for root in roots)


def _beneath(root: Finding, findings: Iterable[Finding]) -> list[str]:
    return [f"    → {describe(finding)}" for finding in findings if finding.explained_by == root.kind]


def _began(finding: Finding) -> str:
    first, last = finding.onset
    when = f"at update {first}" if first == last else f"between updates {first} and {last}"
    cost = ", ".join(_amount(value, name) for name, value in finding.cost.items())
    return f"began {when} ({finding.basis})" + (f"; since then: {cost}" if cost else "")


def _cause(number: int, cause: RankedCause) -> list[str]:
    lines = [f"{number}. {cause.weight:.0%}: {cause.text}"]
    if cause.speaks_for:
        lines.append(f"   for: {'; '.join(cause.speaks_for)}")
    if cause.speaks_against:
        lines.append(f"   against: {'; '.join(cause.speaks_against)}")
    lines.append(f"   check: {cause.next_check}")
    if cause.setting is not None:
        lines.append(f"   set: {cause.setting}")
    return lines


def _amount(value: float, unit: str) -> str:
    number = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
    return f"{number} {unit.removesuffix('s') if value == 1 else unit}"
