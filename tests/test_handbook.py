"""The handbook and the catalogue say the same: kinds, causes and their order, metrics, commands, recorded faults."""

import re
from pathlib import Path

import pytest

from lit_rlhf.commands import COMMANDS
from lit_rlhf_callbacks.metric_table import describe
from lit_rlhf_callbacks.symptoms import KINDS
from lit_rlhf_callbacks.symptoms.finding import link_of
from lit_rlhf_callbacks.symptoms.handbook import anchor, renew

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "handbook.md"
TEXT = PAGE.read_text(encoding="utf-8")
RENEW = "python -m lit_rlhf_callbacks.symptoms.handbook docs/handbook.md"
PARTS = ("*You see*", "*Causes, likeliest first*", "*Confirm*", "*Set*", "*Proof*")
SECTIONS = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n)*)", TEXT, re.MULTILINE))
ANCHORS = [anchor(heading) for heading in re.findall(r"^##+ (.+)$", TEXT, re.MULTILINE)]


def section(kind):
    return next(text for heading, text in SECTIONS.items() if anchor(heading) == kind.replace("_", "-"))


def test_every_kind_has_a_section_and_every_section_is_a_kind():
    linked = [link_of(kind) for kind in KINDS.values()]
    assert sorted(linked) == sorted(f"docs/handbook.md#{anchor(heading)}" for heading in SECTIONS), (
        "write the sections that are missing, with the heading, the five parts and no list of causes, then run: "
        + RENEW
    )
    assert len(ANCHORS) == len(set(ANCHORS))


def test_index_and_causes_are_the_catalogue_s():
    assert renew(TEXT) == TEXT, f"renew docs/handbook.md with: {RENEW}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_has_its_parts_and_all_causes_in_order(kind):
    text = section(kind)
    places = [text.find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)
    listed = re.findall(r"^\d+\. \[?`(\w+)`", text, re.MULTILINE)
    assert listed == [cause.id for cause in sorted(KINDS[kind].causes, key=lambda cause: -cause.prior)]


def test_symptoms_stand_in_their_chapters():
    chapters = re.findall(r"^## (\w)\. .+\n((?:(?!^## ).*\n)*)", TEXT, re.MULTILINE)
    place = {
        anchor(heading).replace("-", "_"): letter
        for letter, text in chapters
        for heading in re.findall(r"^### (.+)$", text, re.MULTILINE)
    }
    lettered = {name: kind.symptom for name, kind in KINDS.items() if kind.symptom in "ABCDEFGHIJ"}
    assert {name: place[name] for name in lettered} == lettered


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, place = target.partition("#")
        file = (PAGE.parent / path).resolve() if path else PAGE
        assert file.exists(), target
        if place:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert place in map(anchor, headings), target


def test_faults_are_recorded_ones_that_expect_the_kind(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "faults"))
    import offline_faults
    import rl_faults

    expected = {}
    for fault in [*rl_faults.FAULTS, *offline_faults.FAULTS]:
        expected.setdefault(fault.name, set()).update(fault.kinds)
    for kind in KINDS:
        named = re.findall(r"`(\w+)`", section(kind).partition("*Proof*")[2])
        assert [fault for fault in named if kind not in expected.get(fault, ())] == [], kind


def test_metrics_commands_and_checks_exist():
    checks = "".join(path.read_text() for path in (ROOT / "callbacks/lit_rlhf_callbacks/checks").glob("*.py"))
    assert [name for name in re.findall(r"checks? `(\w+)`", TEXT) if f'"{name}"' not in checks] == []
    names = re.findall(r"`((?!tests|runs|docs|configs|callbacks)[a-z_]+/[a-z0-9_{}/]+)`", TEXT)
    plain = {re.sub("[{}]", "", name).removeprefix("eval/") for name in names}
    assert [name for name in plain if not (describe(name) or describe(f"eval/{name}"))] == []
    assert set(re.findall(r"python -m lit_rlhf ([a-z-]+)", TEXT)) <= set(COMMANDS)
    missing = TEXT.partition("## Not built yet")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", missing)).isdisjoint(COMMANDS), "a command is there now; say so in the handbook"


def test_the_table_of_failures_is_whole_and_names_every_kind():
    table = TEXT.partition("## What is covered")[2]
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(range(1, 65))
    assert {f"docs/handbook.md#{place}" for place in re.findall(r"\(#([\w-]+)\)", table)} >= {
        link_of(kind) for kind in KINDS.values()
    }
