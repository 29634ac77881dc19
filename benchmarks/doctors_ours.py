"""`RunDoctor`'s rules in the words that run doctors are compared in: rows of metrics in, what was said out.

No settings and no exact checks: this is what is left of the doctor where only a log is known, as it is of the others.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lit_rlhf_callbacks.foreign_logs import merge_rows
from lit_rlhf_callbacks.foreign_names import PLACEHOLDERS
from lit_rlhf_callbacks.symptoms import KINDS, RULES
from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import Finding

# our kinds by the common word; a kind that is missing here keeps its own name
WORDS = {
    "zero_contrast": "zero_std",
    "dead_reward": "reward_dead",
    "reward_function_broken": "reward_dead",
    "advantage_collapse": "adv_collapse",
    "advantage_spike": "adv_spike",
    "clip_asymmetry": "clip_saturation",
    "gradient_spikes": "grad_spike",
    "gradient_vanishing": "grad_vanish",
    "zero_gradient": "grad_zero",
    "not_a_number": "nan",
    "policy_not_moving": "kl_pinned",
    "loss_flat": "plateau",
    "labels_masked": "label_mask",
    "throughput_loss": "throughput",
    "reward_hacking": "reward_hack_eval",
    "reward_variance_jump": "reward_variance",
    "reward_term_dominates": "reward_terms",
    "reward_falls": "reward_drift",
    "never_stops": "truncation",
    "all_truncated": "truncation",
    "length_hacking": "length_hack",
    "displacement": "dpo_displacement",
    "pairs_swapped": "dpo_swapped",
    "beta_scale": "dpo_beta",
    "resume_discontinuity": "discontinuity",
    "kl_estimator_wrong": "kl_estimator",
    "sign_flipped": "sign_flip",
}
# causes that are faults of their own in the comparison
CAUSES = {
    "advantage_sign": "sign_flip",
    "learning_rate_too_low": "lr_low",
    "reward_constant": "reward_dead",
    "reward_none": "reward_dead",
    "kl_sign": "kl_estimator",
    "all_masked": "label_mask",
    "labels_swapped": "dpo_swapped",
    "pairs_swapped": "dpo_swapped",
    "beta_wrong_scale": "dpo_beta",
    "optimizer_state_lost": "discontinuity",
    "learning_rate_jumped": "discontinuity",
    "stale_rollouts": "clip_saturation",
}


class Said(NamedTuple):
    """One statement of a doctor.

    Args:
        peer: Whose.
        kind: In the common words.
        severity: ``info``, ``warn`` or ``critical``.
        onset: Step since when, as it says.
        raised: Step after which a user would have been told.
        native: Its own name for it.
        confidence: None where none is given.
        message: In its own words.
    """

    peer: str
    kind: str
    severity: str
    onset: int | None = None
    raised: int | None = None
    native: str = ""
    confidence: float | None = None
    message: str = ""


def findings(records: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Feed a log row by row, and return every finding at each change of state.

    Args:
        records: Rows with ``step`` and metrics named as TRL, verl or OpenRLHF name them.
    """
    diagnosis, measured = Diagnosis(RULES, KINDS, {}), set[str]()
    changes: list[Finding] = []
    for step, row in merge_rows((dict(record) for record in records), where="rows"):
        measured |= {name for name, value in row.items() if value != 0.0 or not PLACEHOLDERS.fullmatch(name)}
        changes += diagnosis.add_row(step, {name: value for name, value in row.items() if name in measured})
    return changes


def ours(records: Iterable[Mapping[str, Any]], config: Mapping[str, Any], mode: str) -> list[Said]:
    """Say what the rules said, by kind.

    Args:
        records: As for `findings`.
        config: What the others are told of the run; not used.
        mode: ``live`` or ``final``; the same here, for the log is fed row by row either way.
    """
    return [_said(finding, WORDS.get(finding.kind, finding.kind)) for finding in findings(records) if finding.is_active]


def ours_with_causes(records: Iterable[Mapping[str, Any]], config: Mapping[str, Any], mode: str) -> list[Said]:
    """As `ours`, and the first three causes of each warning as if they were findings: for what counts as named only."""
    said = []
    for finding in (finding for finding in findings(records) if finding.is_active):
        words = [CAUSES[cause.id] for cause in finding.causes[:3] if cause.id in CAUSES]
        said += [_said(finding, word) for word in (WORDS.get(finding.kind, finding.kind), *words)]
    return said


def _said(finding: Finding, word: str) -> Said:
    return Said("ours", word, finding.severity, finding.onset[0], finding.step, finding.kind, None, finding.summary)
