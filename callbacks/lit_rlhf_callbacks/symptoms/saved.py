"""Findings from plain data: a checkpoint's, or a line of ``findings.jsonl``."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from lit_rlhf_callbacks.symptoms.finding import Evidence, Finding, RankedCause

_FIELDS = {field.name for field in fields(Finding)}


def finding_from(state: Mapping[str, Any]) -> Finding:
    """Rebuild a finding from what `dataclasses.asdict` made of it; other keys, such as ``hours``, are left out."""
    evidence = tuple(Evidence(**{**item, "window": _pair(item["window"])}) for item in state["evidence"])
    causes = tuple(
        RankedCause(
            **{**item, "speaks_for": tuple(item["speaks_for"]), "speaks_against": tuple(item["speaks_against"])}
        )
        for item in state["causes"]
    )
    known = {name: value for name, value in state.items() if name in _FIELDS}
    tuples = {name: tuple(state[name]) for name in ("onset", "sample_ids", "unchecked")}
    return Finding(**{**known, **tuples, "evidence": evidence, "causes": causes})


def _pair(window: Sequence[int] | None) -> tuple[int, int] | None:
    return (window[0], window[1]) if window is not None else None
