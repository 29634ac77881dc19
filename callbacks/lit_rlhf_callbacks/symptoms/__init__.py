"""The symptom rules: pure functions over a run's metrics, shared by `RunDoctor` and ``python -m lit_rlhf doctor``.

One family per file; each file has the kinds it knows (``KINDS``) and the rules that name them (``RULES``).
"""

from lit_rlhf_callbacks.symptoms import (
    diverging,
    groups,
    held_out,
    identities,
    numerics,
    pairs,
    policy,
    preference,
    progress,
    resources,
    resuming,
    reward_model,
    rewards,
    setup_kinds,
    supervised,
    text,
    updates,
)
from lit_rlhf_callbacks.symptoms.catalogue import Kind
from lit_rlhf_callbacks.symptoms.finding import Rule

FAMILIES: tuple[tuple[tuple[Kind, ...], tuple[Rule, ...]], ...] = (
    (identities.KINDS, identities.RULES),
    (setup_kinds.KINDS, setup_kinds.RULES),
    (numerics.KINDS, numerics.RULES),
    (updates.KINDS, updates.RULES),
    (diverging.KINDS, diverging.RULES),
    (supervised.KINDS, supervised.RULES),
    (held_out.KINDS, held_out.RULES),
    (preference.KINDS, preference.RULES),
    (pairs.KINDS, pairs.RULES),
    (reward_model.KINDS, reward_model.RULES),
    (groups.KINDS, groups.RULES),
    (policy.KINDS, policy.RULES),
    (rewards.KINDS, rewards.RULES),
    (text.KINDS, text.RULES),
    (progress.KINDS, progress.RULES),
    (resources.KINDS, resources.RULES),
    (resuming.KINDS, resuming.RULES),
)

RULES: tuple[Rule, ...] = tuple(rule for _, rules in FAMILIES for rule in rules)
KINDS: dict[str, Kind] = {kind.id: kind for kinds, _ in FAMILIES for kind in kinds}
