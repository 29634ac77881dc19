"""The cause graph of a run: which findings are consequences, and of which root."""

from collections.abc import Mapping

from lit_rlhf_callbacks.symptoms.catalogue import Kind
from lit_rlhf_callbacks.symptoms.finding import Finding


def explain(findings: Mapping[str, Finding], kinds: Mapping[str, Kind]) -> dict[str, str | None]:
    """Return, for each active finding, the kind at the root of it, or None for a root.

    A kind names what it may follow from (``explained_by``, the likeliest first). What is only for information explains
    nothing. Of findings that could explain each other, the one that had surely begun first does.

    Args:
        findings: The latest of each kind; only active ones count.
        kinds: The catalogue.

    Example:
        >>> explain({}, {})
        {}
    """
    active = [kind for kind, finding in findings.items() if finding.is_active]
    edges = {
        kind: [
            root
            for root in kinds[kind].explained_by
            if root in active and root != kind and findings[root].severity != "info"
        ]
        for kind in active
    }
    began = {kind: (findings[kind].onset[1], findings[kind].raised, kind) for kind in active}
    above = {kind: _above(kind, edges) for kind in active}
    kept = {
        kind: [root for root in edges[kind] if kind not in above[root] or began[root] < began[kind]] for kind in active
    }
    return {kind: _root(kind, kept) for kind in active}


def _above(kind: str, edges: Mapping[str, list[str]]) -> set[str]:
    """Return everything a kind may follow from, directly or not."""
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        new = set(edges[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _root(kind: str, edges: Mapping[str, list[str]]) -> str | None:
    root = kind
    while edges[root]:
        root = edges[root][0]
    return root if root != kind else None
