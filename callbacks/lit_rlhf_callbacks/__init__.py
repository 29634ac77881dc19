"""Lightning callbacks for post-training that work in any project: they import only lightning, torch and rich.

The names below are imported when first used, so that ``import lit_rlhf_callbacks`` costs nothing. What a module may
offer these callbacks is one page: ``callbacks/README.md``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lit_rlhf_callbacks.errors import UserError as UserError
    from lit_rlhf_callbacks.exact_resume import ExactResume as ExactResume
    from lit_rlhf_callbacks.length_bucketing import LengthBucketing as LengthBucketing
    from lit_rlhf_callbacks.memory_report import MemoryReport as MemoryReport
    from lit_rlhf_callbacks.policy_monitor import PolicyMonitor as PolicyMonitor
    from lit_rlhf_callbacks.run_doctor import RunDoctor as RunDoctor
    from lit_rlhf_callbacks.run_files import RunFiles as RunFiles
    from lit_rlhf_callbacks.run_record import RunRecord as RunRecord
    from lit_rlhf_callbacks.sample_panel import SamplePanel as SamplePanel
    from lit_rlhf_callbacks.sentinel_eval import SentinelEval as SentinelEval

_HOMES = {
    "ExactResume": "exact_resume",
    "LengthBucketing": "length_bucketing",
    "MemoryReport": "memory_report",
    "PolicyMonitor": "policy_monitor",
    "RunDoctor": "run_doctor",
    "RunFiles": "run_files",
    "RunRecord": "run_record",
    "SamplePanel": "sample_panel",
    "SentinelEval": "sentinel_eval",
    "UserError": "errors",
}

__all__ = [
    "ExactResume",
    "LengthBucketing",
    "MemoryReport",
    "PolicyMonitor",
    "RunDoctor",
    "RunFiles",
    "RunRecord",
    "SamplePanel",
    "SentinelEval",
    "UserError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
