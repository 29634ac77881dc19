"""Which rules could look at what they need, so that a doctor's silence can be read."""

from collections import defaultdict

from lit_rlhf_callbacks.symptoms.diagnosis import Diagnosis
from lit_rlhf_callbacks.symptoms.finding import Rule
from lit_rlhf_callbacks.symptoms.history import NUM_BASELINE
from lit_rlhf_callbacks.symptoms.objective import stage_of
from lit_rlhf_callbacks.symptoms.robust import NUM_ROWS

ENOUGH = NUM_BASELINE + NUM_ROWS  # rows before the first lasting change can be told from noise
_OFFLINE = ("sft", "preference", "reward_model")
_STAGES = {  # families that only some kinds of training can use; nobody misses them in the others
    "preference": ("preference",),
    "pairs": ("preference",),
    "reward_model": ("reward_model",),
    "supervised": _OFFLINE,
    "held_out": _OFFLINE,
    "groups": ("rl",),
    "policy": ("rl",),
    "rewards": ("rl",),
    "text": ("rl",),
    "progress": ("rl",),
}


def family_of(rule: Rule) -> str:
    """Return the file that a rule stands in."""
    return rule.__module__.rpartition(".")[2]


def armed_families(diagnosis: Diagnosis) -> dict[str, list[int]]:
    """Return, per family, in how many rows each of its rules could look."""
    families: dict[str, list[int]] = defaultdict(list)
    for rule in diagnosis.rules:
        families[family_of(rule)].append(diagnosis.armed.get(rule.__name__, 0))
    return dict(families)


def out_of_reach(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return the rules of this kind of training that never could look, each with the metrics nobody logs."""
    stage = stage_of(diagnosis.view)
    found = {}
    for rule in diagnosis.rules:
        is_meant = stage is None or stage in _STAGES.get(family_of(rule), (stage,))
        missing = {
            name
            for name in diagnosis.missing.get(rule.__name__, set()) - diagnosis.names
            if not name.startswith(("eval/", "sentinel/"))  # what a run need not have, or not have yet
        }
        if is_meant and missing and not diagnosis.armed.get(rule.__name__):
            found[rule.__name__] = sorted(missing)
    return found
