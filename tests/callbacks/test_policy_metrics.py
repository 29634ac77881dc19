import math

import pytest
import torch

from lit_rlhf_callbacks.policy_metrics import combine, pack, token_metrics, unpack

CPU = torch.device("cpu")
MASK = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)


def tokens() -> dict[str, torch.Tensor]:
    logps = torch.tensor([[0.0, 9.0, -1.0, -2.0], [0.0, -3.0, 9.0, 9.0], [0.0, 9.0, 9.0, 9.0]])
    return {
        "completion_mask": MASK,
        "logps": logps,
        "old_logps": logps - torch.tensor([[0.0, 5.0, 0.1, -0.2], [0.0, 0.3, 5.0, 5.0], [0.0, 5.0, 5.0, 5.0]]),
        "ref_logps": logps - torch.tensor([[0.0, 5.0, 0.4, 0.0], [0.0, -0.5, 5.0, 5.0], [0.0, 5.0, 5.0, 5.0]]),
        "sampler_logps": logps - torch.tensor([[0.0, 5.0, 0.2, -0.2], [0.0, 0.3, 5.0, 5.0], [0.0, 5.0, 5.0, 5.0]]),
        "advantages": torch.tensor([0.5, 0.0, 1.0]),
    }


def measured(*batches: dict[str, torch.Tensor]) -> dict[str, float]:
    return unpack(combine(torch.stack([pack(*token_metrics(batch), CPU) for batch in batches])))


def test_values_by_hand() -> None:
    metrics = measured(tokens())

    log_ratios, distances = [0.1, -0.2, 0.3], [0.4, 0.0, -0.5]
    assert metrics == pytest.approx(
        {
            "kl/k1": sum(distances) / 3,
            "kl/k2": sum(d * d / 2 for d in distances) / 3,
            "kl/k3": sum(math.expm1(-d) + d for d in distances) / 3,
            "kl": sum(math.expm1(-d) + d for d in distances) / 3,
            "ratio/mean": sum(map(math.exp, log_ratios)) / 3,
            "ratio/max": math.exp(0.3),
            "policy/approxkl_avg": sum(x * x for x in log_ratios) / 6,
            "sampling/sampling_logp_difference/mean": 0.1 / 3,
            "sampling/sampling_logp_difference/max": 0.1,
            "logps/mean": (-1 - 2 - 3) / 3,
            "completions/mean_length": 1.5,
            "completions/empty_ratio": 0.5,
            "completions/min_length": 1.0,
            "completions/max_length": 2.0,
            "advantages/frac_nonzero": 0.5,
            "advantages/mean": 0.25,
            "advantages/std": 0.25,
        },
        rel=1e-5,
        abs=1e-6,
    )


def test_a_window_is_the_same_however_it_is_cut() -> None:
    whole = tokens()
    parts = [{name: value[rows] for name, value in whole.items()} for rows in ([0], [1], [2])]

    assert measured(*parts, {}) == pytest.approx(measured(whole), rel=1e-6)


def test_advantages_per_token_count_on_completion_tokens_only() -> None:
    advantages = torch.where(MASK, 0.0, 1.0)

    metrics = measured({"completion_mask": MASK, "advantages": advantages})
    assert [metrics[f"advantages/{name}"] for name in ("frac_nonzero", "mean", "std")] == [0.0, 0.0, 0.0]


def test_labels_stand_in_for_the_mask_and_the_first_token_has_no_log_prob() -> None:
    labels = torch.tensor([[5, 6, -100]])
    logps = torch.tensor([[0.0, -1.0, -9.0]])
    metrics = measured({"labels": labels, "logps": logps, "ref_logps": logps - 0.5})

    assert metrics["kl/k1"] == pytest.approx(0.5)
    assert metrics["completions/mean_length"] == 2.0


@pytest.mark.parametrize("batch", [{}, {"logps": torch.zeros(1, 2)}, {"completion_mask": torch.zeros(1, 2).bool()}])
def test_nothing_to_measure_is_nothing(batch: dict[str, torch.Tensor]) -> None:
    assert measured(batch) == {}
