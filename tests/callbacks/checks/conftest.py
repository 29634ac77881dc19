"""Makes `checked_runs` importable, and silences what short runs warn of."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Runs keep caches of tokens and references; a broken run must not leave one behind."""
    monkeypatch.setenv("LIT_RLHF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
