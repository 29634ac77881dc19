"""The symptom rules: pure functions over a run's metrics, shared by `RunDoctor` and ``python -m lit_rlhf doctor``.

One family per file; each file has the kinds it knows (``KINDS``) and the rules that name them (``RULES``).
"""

from lit_rlhf_callbacks.symptoms.catalogue import Kind
from lit_rlhf_callbacks.symptoms.finding import Rule

FAMILIES: tuple[tuple[tuple[Kind, ...], tuple[Rule, ...]], ...] = ()

RULES: tuple[Rule, ...] = tuple(rule for _, rules in FAMILIES for rule in rules)
KINDS: dict[str, Kind] = {kind.id: kind for kinds, _ in FAMILIES for kind in kinds}
