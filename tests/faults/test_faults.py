"""The doctor on real runs: broken ones are named with their cause, healthy ones are left in peace."""

from pathlib import Path

import pytest
from fault import Fault, record
from known_misses import MISSED, MISSED_SPARSE
from offline_faults import FAULTS as OFFLINE
from replay import read, replay
from rl_faults import FAULTS as ONLINE

from lit_rlhf_callbacks.symptoms.robust import wilson

FOLDER = Path(__file__).parent / "recordings"
LONG_HEALTHY = sorted(FOLDER.glob("long-long_healthy-*.json.gz"))
LONG = sorted(set(FOLDER.glob("long-*.json.gz")) - set(LONG_HEALTHY))
BROKEN = sorted(FOLDER.glob("reporting-*.json.gz")) + LONG
ENOUGH = 100
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


@pytest.mark.parametrize("path", LONG_HEALTHY, ids=name_of)
@pytest.mark.parametrize("every", [1, 10])
def test_long_healthy_run_raises_no_warning(path, every):
    assert not replay(path, every).warnings


@pytest.mark.parametrize("path", LONG, ids=name_of)
def test_fault_of_a_long_run_is_named_from_every_tenth_row(path):
    result = replay(path, every=10)
    assert (result.named is None) == (name_of(path) in MISSED_SPARSE), f"said: {list(result.warnings)}"


def test_false_alarms_are_rare():
    paths = sorted(FOLDER.glob("small-*.json.gz"))
    if len(paths) < ENOUGH:
        pytest.skip(f"{len(paths)} healthy seeds are recorded: fewer than {ENOUGH} say nothing of a rate of 5 %")
    results = [replay(path) for path in paths]
    alarmed = [result for result in results if result.warnings]
    assert not any(finding.severity == "critical" for result in results for finding in result.said)
    assert len(alarmed) / len(results) <= 0.05
    assert wilson(len(alarmed), len(results))[0] <= 0.05


@pytest.mark.parametrize("path", [path for path in BROKEN if path.name.split("-")[1] in IMMEDIATE], ids=name_of)
def test_immediate_fault_is_named_within_three_sparse_rows(path):
    result = replay(path, every=10)
    rows = [step for step, _ in read(path)[1].rows if step % 10 == 0 and step > result.recording["at"]]
    if len(rows) < 3:
        pytest.skip(f"the run ended {len(rows)} sparse rows after the fault")
    assert result.named is not None
    assert result.named.raised <= rows[2]


def test_there_are_forty_recordings_of_faults_that_exist():
    recorded = {tuple(path.name.split("-")[1:3]) for path in BROKEN}
    faults = {(fault.name, fault.config) for fault in [*ONLINE, *OFFLINE]}
    assert {(name.removeprefix("long_"), config) for name, config in recorded} <= faults
    assert len(recorded) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("key", [("negated_advantages", "grpo"), ("double_bos", "sft")], ids="-".join)
def test_fault_is_named_in_a_run_made_now(key, tmp_path):
    fault = next(fault for fault in [*ONLINE, *OFFLINE] if (fault.name, fault.config) == key)
    path = tmp_path / "now.json.gz"
    record(Fault(**{**vars(fault), "args": (*fault.args, "--trainer.max_steps", "6")}), 3, path)
    assert replay(path).named is not None
