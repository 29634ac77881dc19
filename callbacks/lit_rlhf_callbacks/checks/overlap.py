"""Whether held-out prompts are really held out."""

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

MATERIAL = 0.1  # of the held-out prompts


def check_overlap(num_shared: int, num_held_out: int, *, step: int = 0) -> CheckResult:
    """Judge how many held-out prompts are trained on.

    Args:
        num_shared: Of `shared_prompts.count_shared`.
        num_held_out: All held-out prompts.
        step: Updates made.
    """
    name = "held_out_prompts"
    if not num_held_out:
        return unknown(name, step, "there are no held-out prompts")
    share = num_shared / num_held_out
    text = f"{num_shared} of {num_held_out} held-out prompts are also trained on"
    if not num_shared:
        return passed(name, step, text)
    severity = "warn" if share >= MATERIAL else "info"
    return failed(name, step, "eval_contamination", "train_rows_in_eval", text, {"share": share}, severity)  # type: ignore[arg-type]
