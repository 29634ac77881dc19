"""Whether a resumed run goes on where it stopped: learning rate, optimiser, random state, place in the data."""

import hashlib
from typing import Any

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

KIND = "resume_discontinuity"
JUMP = 1.5


def check_learning_rate(saved: float, now: float, *, step: int = 0) -> CheckResult:
    """Compare the learning rate that the checkpoint was about to use with that of the first update after it."""
    name = "resume_learning_rate"
    if max(saved, now) > JUMP * min(saved, now):
        text = f"the learning rate was about to be {saved:.3g} and is {now:.3g} after the resume"
        return failed(name, step, KIND, "learning_rate_jumped", text, {"saved": saved, "now": now}, "warn")
    return passed(name, step, f"the learning rate goes on at {now:.3g}", {"saved": saved, "now": now})


def check_optimizer_state(num_saved: int, num_now: int, *, step: int = 0) -> CheckResult:
    """Compare for how many weights the optimiser has a state (AdamW's moments)."""
    name = "resume_optimizer_state"
    if num_now < num_saved:
        text = f"the optimiser had a state of {num_saved} tensors and has one of {num_now}: it begins without moments"
        return failed(name, step, KIND, "optimizer_state_lost", text)
    return passed(name, step, f"the optimiser has its state of {num_now} tensors")


def check_random_state(saved: str, now: str, *, step: int = 0) -> CheckResult:
    """Compare hashes of the random states when the checkpoint was made and when training goes on."""
    name = "resume_random_state"
    if saved != now:
        text = "random states are not those of the checkpoint (ExactResume restores them)"
        return failed(name, step, KIND, "rng_not_restored", text, severity="info")
    return passed(name, step, "random states are those of the checkpoint")


def check_data_order(
    first_of_epoch: int | None, before_stop: int | None, after: int | None, *, in_epoch: bool, step: int = 0
) -> CheckResult:
    """Check that the first window after a resume is not the epoch's first again.

    Args:
        first_of_epoch: A hash of the rows (or prompts) of the epoch's first window.
        before_stop: Of the last one before the checkpoint.
        after: Of the first one after it.
        in_epoch: Whether the checkpoint is from within an epoch.
        step: Updates made.
    """
    name = "resume_data_order"
    if None in (first_of_epoch, before_stop, after) or not in_epoch or first_of_epoch == before_stop:
        return unknown(name, step, "no window to compare with in this epoch")
    if after == first_of_epoch:
        text = "the first window after the resume is the epoch's first one again: the data began anew"
        return failed(name, step, KIND, "data_order_lost", text)
    return passed(name, step, "the first window after the resume is not the epoch's first one")


def hash_state(state: Any) -> str:
    """Hash nested plain values and tensors, as `get_rng_state` gives them."""
    return hashlib.sha256(repr(_plain(state)).encode()).hexdigest()[:16]


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return sorted((key, _plain(value)) for key, value in state.items())
    if isinstance(state, list | tuple):
        return [_plain(value) for value in state]
    return state.tolist() if hasattr(state, "tolist") else state
