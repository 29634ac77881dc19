"""Whether the logged KL is what its estimator gives on the same tokens."""

from typing import Literal

from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.scoring import kl_estimate
from lit_rlhf_callbacks.symptoms.finding import CheckResult

Estimates = dict[str, float]
NAME = "kl_estimator"


def kl_sums(logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
    """Return the sums of k1, k2 and k3 over the counted tokens, and their number, ``[4]``: they add up over ranks."""
    left, right = logps[mask], ref_logps[mask]
    values = [kl_estimate(left, right, estimator).sum() for estimator in ("k1", "k2", "k3")]
    return values[0].new_tensor([*values, float(len(left))])


def check_kl_estimator(
    logged: float, sums: Tensor, estimator: Literal["k1", "k2", "k3"] = "k3", *, step: int = 0
) -> CheckResult:
    """Recompute the KL by all three estimators and see which of them was logged.

    Only what is plainly another estimator fails: tokens may be weighted in other ways than here.

    Args:
        logged: Mean over the window, nats per token.
        sums: Of `kl_sums`, over the whole window.
        estimator: The one that is said to be used.
        step: Updates made.
    """
    total = float(sums[3])
    if total == 0:
        return unknown(NAME, step, "no token counts")
    k1, k2, k3 = (float(value) / total for value in sums[:3])
    means = {"k1": k1, "k2": k2, "k3": k3}
    numbers = {"logged": logged, **means}
    expected = means[estimator]
    if max(map(abs, means.values())) < 1e-6:
        return unknown(NAME, step, "policy and reference are still too close to tell estimators apart")
    shown = ", ".join(f"{key} {value:.3g}" for key, value in means.items())
    if estimator != "k1" and logged < -1e-6:
        cause = "kl_sign" if any(_near(logged, -value) for value in (k1, expected)) else "kl_not_k3"
        text = f"the logged KL is {logged:.3g}, but {estimator} is never negative (on the same tokens {shown})"
        return failed(NAME, step, "kl_estimator_wrong", cause, text, numbers)
    if _near(logged, expected, 0.1):
        return passed(NAME, step, f"the logged KL {logged:.3g} is {estimator} (on the same tokens {shown})", numbers)
    others = {f"-{key}": -value for key, value in means.items()}
    others |= {key: value for key, value in means.items() if key != estimator}
    match = next((key for key, value in others.items() if _near(logged, value)), None)
    if match is None:
        return unknown(NAME, step, f"the logged KL {logged:.3g} is none of {shown}; it may be weighted another way")
    text = f"the logged KL {logged:.3g} is {match}, not {estimator} (on the same tokens {shown})"
    cause = "kl_sign" if match == f"-{estimator}" or match == "-k1" else "kl_not_k3"
    return failed(NAME, step, "kl_estimator_wrong", cause, text, numbers)


def _near(left: float, right: float, tolerance: float = 0.01) -> bool:
    return abs(left - right) <= tolerance * abs(right)
