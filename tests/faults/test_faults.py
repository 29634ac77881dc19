"""The doctor on real runs: broken ones are named with their cause, healthy ones are left in peace."""

from collections import defaultdict
from pathlib import Path

import pytest
from fault import Fault, record
from known_misses import MISSED, MISSED_THINNED
from offline_faults import FAULTS as OFFLINE
from replay import read, replay
from rl_faults import FAULTS as ONLINE

from lit_rlhf_callbacks.symptoms.robust import wilson

FOLDER = Path(__file__).parent / "recordings"
BROKEN = sorted(FOLDER.glob("reporting-*.json.gz")) + sorted(FOLDER.glob("long-*.json.gz"))
IMMEDIATE = ("constant_reward", "reward_dies", "accepts_everything", "impossible_task", "never_stops", "one_nan")


def name_of(path):
    return path.name.removesuffix(".json.gz")


@pytest.mark.parametrize("path", BROKEN, ids=name_of)
def test_broken_run_is_named_with_its_cause(path):
    result = replay(path)
    if name_of(path) in MISSED:
        assert result.named is None, "named now: take it off the list of misses"
    else:
        assert result.named is not None, f"said: {list(result.warnings)}"


@pytest.mark.parametrize("path", [path for path in BROKEN if "rate_jumps" in path.name], ids=name_of)
def test_fault_is_not_named_before_it_is_there(path):
    result = replay(path)
    assert not result.early


@pytest.mark.parametrize("path", sorted(FOLDER.glob("shipped-*.json.gz")), ids=name_of)
def test_shipped_config_raises_no_warning(path):
    assert not replay(path).warnings


def test_false_alarms_are_rare():
    results = [replay(path) for path in sorted(FOLDER.glob("small-*.json.gz"))]
    alarmed = [result for result in results if result.warnings]
    assert not any(finding.severity == "critical" for result in results for finding in result.said)
    assert len(alarmed) / len(results) <= 0.05
    assert wilson(len(alarmed), len(results))[0] <= 0.05


@pytest.mark.parametrize("path", [path for path in BROKEN if path.name.split("-")[1] in IMMEDIATE], ids=name_of)
def test_immediate_fault_is_named_within_three_sparse_rows(path):
    result = replay(path, every=10)
    if name_of(path) in MISSED_THINNED:
        assert result.named is None, "named now: take it off the list of misses"
        return
    assert result.named is not None
    rows = [step for step, _ in read(path)[1].rows if step % 10 == 0 and step > result.recording["at"]]
    assert result.named.raised <= rows[min(2, len(rows) - 1)]


def test_every_fault_is_recorded_and_there_are_enough():
    recorded = {tuple(path.name.split("-")[1:3]) for path in BROKEN}
    faults = {(fault.name, fault.config) for fault in [*ONLINE, *OFFLINE]}
    configs = defaultdict(set)
    for name, config in recorded:
        configs[name].add(config)
    assert recorded - faults <= {key for key in recorded if key[0].startswith("long_")}
    assert {name for name, _ in faults} <= set(configs)
    assert len(recorded) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("key", [("negated_advantages", "grpo"), ("double_bos", "sft")], ids="-".join)
def test_fault_is_named_in_a_run_made_now(key, tmp_path):
    fault = next(fault for fault in [*ONLINE, *OFFLINE] if (fault.name, fault.config) == key)
    path = tmp_path / "now.json.gz"
    record(Fault(**{**vars(fault), "args": (*fault.args, "--trainer.max_steps", "6")}), 3, path)
    assert replay(path).named is not None
