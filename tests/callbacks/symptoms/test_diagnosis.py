import itertools

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.diagnosis import NUM_TO_CLOSE, NUM_TO_CRITICAL, NUM_TO_RECOVER, Diagnosis
from lit_rlhf_callbacks.symptoms.finding import Alarm, CheckResult, Evidence, RunView
from lit_rlhf_callbacks.symptoms.graph import explain


def kind(name: str, *explained_by: str, causes: tuple[Cause, ...] = ()) -> Kind:
    causes = causes or (Cause("only", "the only cause", 1.0, "look"),)
    return Kind(name, "A", name.title(), causes, explained_by)


def rule_for(name: str, severity: str = "warn", basis: str = "statistical"):
    """Alarm while a metric of the kind's name is above 1."""

    def rule(view: RunView) -> Alarm | None:
        if not view.history.has(name) or view.history[name].last <= 1:
            return None
        return Alarm(name, severity, basis, f"{name} is high", (Evidence(name, view.history[name].last),))

    rule.__name__ = name
    return rule


def engine(*kinds: Kind, facts: dict | None = None, **severities: str) -> Diagnosis:
    rules = [rule_for(each.id, severities.get(each.id, "warn")) for each in kinds]
    return Diagnosis(rules, {each.id: each for each in kinds}, facts or {})


def feed(diagnosis: Diagnosis, first: int, last: int, **row: float) -> list:
    return [finding for step in range(first, last + 1) for finding in diagnosis.add_row(step, row)]


def test_a_finding_opens_recovers_closes_and_opens_again() -> None:
    diagnosis = engine(kind("a"))
    assert feed(diagnosis, 1, 30, a=0.0) == []
    (opened,) = feed(diagnosis, 31, 40, a=5.0)  # once, however long it lasts
    assert (opened.state, opened.raised, opened.onset, opened.step) == ("open", 31, (31, 31), 31)

    changes = feed(diagnosis, 41, 41 + NUM_TO_CLOSE, a=0.0)
    assert [(each.state, each.step) for each in changes] == [
        ("recovered", 40 + NUM_TO_RECOVER),
        ("closed", 40 + NUM_TO_CLOSE),
    ]
    (again,) = feed(diagnosis, 110, 112, a=5.0)
    assert (again.state, again.raised) == ("open", 110)
    assert again.onset[0] > 40  # the second time, not the first


def test_a_statistical_alarm_is_critical_only_when_it_lasts() -> None:
    diagnosis = engine(kind("a"), a="critical")
    changes = feed(diagnosis, 1, 20, a=5.0)
    assert [(each.severity, each.state, each.step) for each in changes] == [
        ("warn", "open", 1),
        ("critical", "worse", NUM_TO_CRITICAL),
    ]
    assert changes[1].raised == 1

    interrupted = engine(kind("a"), a="critical")
    for start in (1, 10, 19):
        assert all(each.severity == "warn" for each in feed(interrupted, start, start + 7, a=5.0))
        feed(interrupted, start + 8, start + 8, a=0.0)


def test_an_exact_alarm_is_critical_at_once() -> None:
    diagnosis = Diagnosis([rule_for("a", "critical", "exact")], {"a": kind("a")}, {})
    (finding,) = feed(diagnosis, 1, 3, a=5.0)
    assert (finding.severity, finding.basis) == ("critical", "exact")


def test_of_several_alarms_of_a_kind_the_gravest_counts() -> None:
    rules = [rule_for("a", "warn"), rule_for("a", "critical", "exact"), rule_for("a", "info")]
    (finding,) = feed(Diagnosis(rules, {"a": kind("a")}, {}), 1, 5, a=5.0)
    assert finding.severity == "critical"


def test_consequences_find_their_root_also_when_it_comes_later_and_through_others() -> None:
    diagnosis = engine(kind("a"), kind("b", "a"), kind("c", "b"))
    (c,) = feed(diagnosis, 1, 1, a=0.0, b=0.0, c=5.0)
    assert c.explained_by is None
    changes = feed(diagnosis, 2, 2, a=0.0, b=5.0, c=5.0)
    assert {each.kind: each.explained_by for each in changes} == {"b": None, "c": "b"}
    changes = feed(diagnosis, 3, 3, a=5.0, b=5.0, c=5.0)
    assert {each.kind: each.explained_by for each in changes} == {"a": None, "b": "a", "c": "a"}
    assert [each.kind for each in diagnosis.active()] == ["a", "c", "b"]


def test_a_consequence_outlives_its_root_as_a_finding_of_its_own() -> None:
    diagnosis = engine(kind("a"), kind("b", "a"))
    feed(diagnosis, 1, 5, a=5.0, b=5.0)
    assert diagnosis.findings["b"].explained_by == "a"
    feed(diagnosis, 6, 5 + NUM_TO_RECOVER, a=0.0, b=5.0)
    assert diagnosis.findings["a"].state == "recovered"
    assert diagnosis.findings["b"].explained_by is None


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_of_two_that_explain_each_other_the_earlier_is_the_root(first: str, second: str) -> None:
    diagnosis = engine(kind("a", "b"), kind("b", "a"))
    feed(diagnosis, 1, 5, **{first: 5.0, second: 0.0})
    feed(diagnosis, 6, 9, **{first: 5.0, second: 5.0})
    assert diagnosis.findings[first].explained_by is None
    assert diagnosis.findings[second].explained_by == first


def test_in_a_ring_there_is_one_root() -> None:
    diagnosis = engine(kind("a", "b"), kind("b", "c"), kind("c", "a"))
    feed(diagnosis, 1, 2, a=0.0, b=5.0, c=0.0)
    feed(diagnosis, 3, 9, a=5.0, b=5.0, c=5.0)
    assert {name: each.explained_by for name, each in diagnosis.findings.items()} == {"a": "b", "b": None, "c": "b"}


def test_what_is_only_for_information_explains_nothing() -> None:
    diagnosis = engine(kind("a"), kind("b", "a"), a="info")
    feed(diagnosis, 1, 3, a=5.0, b=5.0)
    assert diagnosis.findings["b"].explained_by is None


def failed(step: int, name: str = "check", **fields) -> CheckResult:
    return CheckResult(name, "failed", step, "measured 2, expected 1", "a", "second", measured={"x": 2.0}, **fields)


CAUSES = (Cause("first", "the usual one", 0.9, "look"), Cause("second", "the rare one", 0.1, "look"))


def test_a_failed_check_is_a_critical_finding_with_its_cause_first_and_is_over_when_it_passes() -> None:
    diagnosis = engine(kind("a", causes=CAUSES))
    (finding,) = diagnosis.add_check(failed(1))
    assert (finding.severity, finding.basis, finding.onset, finding.raised) == ("critical", "exact", (1, 1), 1)
    assert [cause.id for cause in finding.causes] == ["second", "first"]
    assert finding.evidence == (Evidence("x", 2.0),)
    assert feed(diagnosis, 1, 3 * NUM_TO_CLOSE, b=0.0) == []  # rows say nothing about it
    assert diagnosis.add_check(failed(200)) == []
    assert diagnosis.add_check(CheckResult("check", "unknown", 201, "not offered")) == []

    (over,) = diagnosis.add_check(CheckResult("check", "ok", 300, "fine"))
    assert (over.state, over.step) == ("recovered", 300)
    (closed,) = feed(diagnosis, 301, 400, b=0.0)
    assert closed.state == "closed"
    (again,) = diagnosis.add_check(failed(500))
    assert (again.state, again.raised) == ("open", 500)


def test_a_kind_holds_until_the_last_of_its_checks_passes() -> None:
    diagnosis = engine(kind("a", causes=CAUSES))
    diagnosis.add_check(failed(1, "one"))
    diagnosis.add_check(failed(1, "two"))
    assert diagnosis.add_check(CheckResult("one", "ok", 2, "fine")) == []
    assert [each.state for each in diagnosis.add_check(CheckResult("two", "ok", 3, "fine"))] == ["recovered"]


def test_proof_makes_a_suspicion_worse() -> None:
    diagnosis = engine(kind("a", causes=CAUSES))
    (suspected,) = feed(diagnosis, 1, 4, a=5.0)
    assert suspected.causes[0].id == "first"
    (proven,) = diagnosis.add_check(failed(5, severity="warn"))
    assert (proven.state, proven.severity, proven.basis, proven.causes[0].id) == ("worse", "warn", "exact", "second")


def test_what_it_has_cost_and_what_nobody_can_tell() -> None:
    sign = Sign("the moon is full", lambda view: None, 3.0)
    causes = (Cause("moon", "the moon", 1.0, "look up", (sign,)),)
    diagnosis = engine(kind("a", causes=causes), facts={"window.num_completions": 32})
    for step in range(1, 31):
        diagnosis.add_row(step, {"a": 0.0, "hours": 0.1 * step})
    (finding,) = [each for step in range(31, 33) for each in diagnosis.add_row(step, {"a": 9.0, "hours": 0.1 * step})]
    assert finding.cost == {"updates": 1, "completions": 32, "hours": pytest.approx(0.1)}
    assert finding.unchecked == ("the moon is full",)


def test_a_rule_that_fails_is_said_once_and_the_others_go_on() -> None:
    def broken(view: RunView) -> Alarm | None:
        raise ZeroDivisionError("oh")

    def unknown_kind(view: RunView) -> Alarm | None:
        return Alarm("nobody", "warn", "exact", "", ())

    diagnosis = Diagnosis([broken, unknown_kind, rule_for("a")], {"a": kind("a")}, {})
    assert [each.kind for each in feed(diagnosis, 1, 3, a=5.0)] == ["a"]
    assert [name for name, _ in diagnosis.take_broken()] == ["broken", "unknown_kind"]
    assert diagnosis.take_broken() == []


def test_it_knows_which_rules_could_look() -> None:
    def late(view: RunView) -> None:
        if view.history.has("a") and view.history["a"].is_armed(15):
            pass

    def elsewhere(view: RunView) -> None:
        view.history.has("kl")

    def other_stage(view: RunView) -> None:
        return None

    diagnosis = Diagnosis([late, elsewhere, other_stage, rule_for("a")], {"a": kind("a")}, {})
    feed(diagnosis, 1, 50, a=0.0, learning_rate=0.1)
    assert diagnosis.armed == {"late": 50 - 34 - 1, "a": 50}  # 20 + 15 rows, after one of unknown warmth
    assert diagnosis.missing == {"elsewhere": {"kl"}}


def test_it_goes_on_from_its_state_as_if_nothing_had_happened() -> None:
    import io

    import torch

    def whole() -> Diagnosis:
        return engine(kind("a", causes=CAUSES), kind("b", "a"), b="critical")

    def course(diagnosis: Diagnosis, first: int, last: int) -> list:
        changes = [each for step in range(first, last) for each in diagnosis.add_row(step, {"a": step / 20, "b": 2.0})]
        return changes + diagnosis.add_check(failed(last)) + diagnosis.add_check(CheckResult("check", "ok", last, ""))

    one = whole()
    course(one, 1, 15)
    file = io.BytesIO()
    torch.save(one.state(), file)
    file.seek(0)
    two = whole()
    two.load_state(torch.load(file, weights_only=True))
    assert course(two, 15, 120) == course(one, 15, 120)
    assert two.findings == one.findings
    assert two.state() == one.state()


def test_the_root_does_not_depend_on_the_order_of_findings() -> None:
    """Sets are ordered by a hash that differs between processes: ranks, and a run and its replay, must agree."""
    names = ("a", "b", "c", "d")
    kinds = {name: kind(name, *(other for other in names if other != name)) for name in names}
    diagnosis = engine(*kinds.values())
    feed(diagnosis, 1, 30, a=0.0, b=0.0, c=0.0, d=0.0)
    feed(diagnosis, 31, 40, a=0.0, b=0.0, c=5.0, d=0.0)
    feed(diagnosis, 41, 50, a=5.0, b=5.0, c=5.0, d=5.0)
    roots = [
        explain({name: diagnosis.findings[name] for name in order}, kinds) for order in itertools.permutations(names)
    ]
    assert all(each == roots[0] for each in roots)
    assert [name for name in names if roots[0][name] is None] == ["c"]


def test_a_rule_that_waits_for_a_metric_is_asked_again_when_it_comes() -> None:
    diagnosis = engine(kind("a"))
    feed(diagnosis, 1, 5, other=1.0)
    (found,) = feed(diagnosis, 6, 6, other=1.0, a=5.0)
    assert found.kind == "a"
    diagnosis.anchor(6)
    assert feed(diagnosis, 7, 7, other=1.0) == []
    feed(diagnosis, 8, 30, a=0.0)  # as many metrics as before, and another one
    (again,) = feed(diagnosis, 31, 31, a=5.0)
    assert again.kind == "a"
