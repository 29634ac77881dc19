"""Each callback, and all of them, in projects written without lit_rlhf: the training is what it was without them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_projects import Boring, Chat, every_callback, train
from letters import letter_tokenizer
from lightning.pytorch import Callback

import lit_rlhf_callbacks

NAMES = [name for name in lit_rlhf_callbacks.__all__ if name != "UserError"]
SETTINGS = {"fp32": {}, "bf16": {"precision": "bf16-mixed"}, "accumulated": {"accumulate_grad_batches": 2}}
PROJECTS = {"hugging_face": (Chat, letter_tokenizer()), "boring": (Boring,)}

Untouched = Callable[[str, str, list[Callback]], dict[str, Any]]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Untouched:
    """Train without the callbacks (with those given, which may change a run); each such run is made once."""
    known: dict[tuple[str, str, int], dict[str, Any]] = {}

    def run(project: str, setting: str, callbacks: list[Callback]) -> dict[str, Any]:
        key = project, setting, len(callbacks)
        if key not in known:
            folder = tmp_path_factory.mktemp("without")
            known[key] = train(*_call(project, callbacks), **SETTINGS[setting], default_root_dir=folder)
        return known[key]

    return run


def _call(project: str, callbacks: list[Callback]) -> list[Any]:
    module, *arguments = PROJECTS[project]
    return [module, callbacks, *arguments]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("project", PROJECTS)
@pytest.mark.parametrize("name", [*NAMES, "all"])
def test_training_is_the_same_bit_for_bit(
    name: str, project: str, setting: str, without: Untouched, tmp_path: Path
) -> None:
    """LengthBucketing changes batches on purpose where it can: there the others are held against it alone."""
    made = every_callback(tmp_path)
    callbacks = list(made.values()) if name == "all" else [made[name]]
    may_change = [lit_rlhf_callbacks.LengthBucketing()] if project == "hugging_face" else []
    alike = may_change if name in {"all", "LengthBucketing"} else []
    with_them = train(*_call(project, callbacks), **SETTINGS[setting], default_root_dir=tmp_path)

    assert with_them == without(project, setting, alike)
    assert len(with_them["losses"]) == 6 * SETTINGS[setting].get("accumulate_grad_batches", 1)


def test_bucketing_is_the_only_one_that_changes_batches(without: Untouched) -> None:
    """So that the test above says something of the others."""
    bucketed = without("hugging_face", "fp32", [lit_rlhf_callbacks.LengthBucketing()])
    assert bucketed["losses"] != without("hugging_face", "fp32", [])["losses"]


def test_all_but_bucketing_leave_the_batches_of_a_foreign_project(without: Untouched, tmp_path: Path) -> None:
    made = every_callback(tmp_path)
    others = [made[name] for name in NAMES if name != "LengthBucketing"]
    assert train(*_call("hugging_face", others), default_root_dir=tmp_path) == without("hugging_face", "fp32", [])


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_no_language_model_is_declined_in_one_line(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    with caplog.at_level(logging.INFO):
        train(Boring, [every_callback(tmp_path)[name]], default_root_dir=tmp_path)
    said = [record.getMessage() for record in caplog.records] + [str(warning.message) for warning in recwarn]
    lines = [line for text in said if name in text for line in text.splitlines()]
    quiet = {"RunFiles", "RunRecord", "ExactResume"}  # they work for any module
    assert len(lines) == (0 if name in quiet else 1), lines
