"""T5: the KL to the reference does what its settings say, in the loss and in the reward, through the whole module."""

import pytest
import torch
from short_runs import constant, deviation, optimizer, rows_by_content

BETA = 0.2


def move(module):
    """Put the policy away from the reference, or every KL and its gradient are zero."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.backbone.policy.parameters():
        parameter.data.mul_(1 + 0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture
def moved(run):
    """A function: one update of a policy that has moved away from its reference."""
    return lambda algorithm, **settings: run(algorithm, change=move, **settings)


def gradient(seen):
    return torch.cat([g.flatten() for g in seen.gradients[0].values()])


@pytest.mark.parametrize("straight_through", [False, True])
def test_in_the_loss_the_gradient_is_linear_in_beta(algorithm, moved, straight_through):
    settings = {"kl_in": "loss", "kl_estimator": "k3", "kl_straight_through": straight_through}
    once, twice = (gradient(moved(algorithm, beta=beta, **settings)) for beta in (BETA, 2 * BETA))
    none = gradient(moved(algorithm))
    kl = once - none
    assert kl.norm() > 0.01 * none.norm()
    assert torch.allclose(twice - none, 2 * kl, atol=float(1e-5 * once.abs().max()))


def test_straight_through_gives_every_estimator_the_gradient_of_k2(algorithm, moved):
    settings = {"kl_in": "loss", "beta": BETA}
    k2 = moved(algorithm, kl_estimator="k2", kl_straight_through=False, **settings)
    for estimator in ("k1", "k2", "k3"):
        assert deviation(k2, moved(algorithm, kl_estimator=estimator, kl_straight_through=True, **settings)) < 1e-5
    for estimator in ("k1", "k3"):
        assert deviation(k2, moved(algorithm, kl_estimator=estimator, kl_straight_through=False, **settings)) > 1e-3


def test_the_kl_alone_brings_the_policy_back(algorithm, moved):
    """Rewards that are all the same leave only the KL, so its sign shows."""
    settings = {"rewards": [constant], "kl_in": "loss", "kl_estimator": "k3", "drop_zero_std": False, "beta": 1.0}
    if algorithm == "Reinforce":
        settings["baseline"] = "group_mean"  # without one it would reinforce the constant
    seen = moved(algorithm, updates=3, epochs_per_phase=3, optimizer=optimizer("SGD", 0.002), **settings)
    kl = [metrics["kl"] for metrics in seen.metrics]
    assert kl[0] > kl[1] > kl[2] > 0


def test_in_the_reward_it_lowers_what_the_advantage_is_made_of(moved):
    seen = moved("RLOO", beta=BETA)
    rows = {}
    for (prompt, _), (row,) in rows_by_content(seen).items():
        kl = float((row["old_logps"] - row["ref_logps"]).sum())  # k1, RLOO's own
        rows.setdefault(prompt, []).append((float(row["rewards"]) - BETA * kl, row["advantages"]))
    for group in rows.values():
        for net, advantages in group:
            others = (sum(other for other, _ in group) - net) / (len(group) - 1)
            assert advantages.tolist() == pytest.approx([net - others] * len(advantages), abs=1e-4)


def test_in_the_reward_it_counts_from_its_token_on(moved):
    seen = moved("ReinforcePlusPlus", beta=BETA)
    returns, advantages = [], []
    for (row,) in rows_by_content(seen).values():
        kl = (row["old_logps"] - row["ref_logps"]).tolist()
        returns += [float(row["rewards"]) - BETA * sum(kl[token:]) for token in range(len(kl))]
        advantages += row["advantages"].tolist()
    mean, std = torch.tensor(returns).mean(), torch.tensor(returns).std()
    assert advantages == pytest.approx([float((value - mean) / std) for value in returns], abs=1e-4)


def test_in_the_reward_the_kl_changes_the_gradient_and_not_the_loss_term(algorithm, moved):
    if algorithm == "MaxRL":
        pytest.skip("refuses it: see test_bad_input.py")
    settings = {"kl_in": "reward", "kl_estimator": "k1", "drop_zero_std": False}
    without, plain = moved(algorithm, beta=0.0, **settings), moved(algorithm, beta=BETA, **settings)
    assert deviation(without, plain) > 0.01
    assert plain.metrics[0]["kl"] != 0
    assert deviation(plain, moved(algorithm, beta=BETA, **{**settings, "kl_straight_through": False})) == 0
