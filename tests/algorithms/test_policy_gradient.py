"""Each class has its paper's defaults, and makes its paper's advantages out of them."""

import pytest
import torch

import lit_rlhf.algorithms as algorithms
from lit_rlhf.rollout.experience import from_completions
from lit_rlhf.rollout.protocol import Completion
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.metric_table import describe

# group size, baseline, scale, aggregation, clip below and above, KL estimator and where it goes
DEFAULTS = {
    "Reinforce": (1, "none", "none", "seq_mean_token_sum", 0.2, 0.2, "k3", "loss"),
    "ReinforcePlusPlus": (1, "none", "batch", "token_mean", 0.2, 0.2, "k1", "reward"),
    "RLOO": (4, "leave_one_out", "none", "seq_mean_token_sum", 0.2, 0.2, "k1", "reward"),
    "GRPO": (8, "group_mean", "group", "seq_mean_token_mean", 0.2, 0.2, "k3", "loss"),
    "DrGRPO": (8, "group_mean", "none", "constant", 0.2, 0.2, "k3", "loss"),
    "DAPO": (8, "group_mean", "group", "token_mean", 0.2, 0.28, "k3", "loss"),
    "GSPO": (8, "group_mean", "group", "seq_mean_token_mean", 3e-4, 4e-4, "k3", "loss"),
    "CISPO": (8, "group_mean", "group", "token_mean", 1.0, 4.0, "k3", "loss"),
    "SAPO": (8, "group_mean", "group", "seq_mean_token_mean", 0.2, 0.2, "k3", "loss"),
    "MaxRL": (8, "group_mean", "none", "seq_mean_token_mean", 0.2, 0.2, "k3", "loss"),
}
NEEDS_NO_GROUPS = {"Reinforce", "ReinforcePlusPlus"}

# prompt 3: two right of four; prompt 8: one right of two, twice as long
REWARDS = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
PROMPTS = [3, 3, 3, 3, 8, 8]
LENGTHS = [1, 2, 1, 2, 4, 4]
STD_3, STD_8 = (1 / 3) ** 0.5, 0.5**0.5
ADVANTAGES = {
    "Reinforce": REWARDS,
    "RLOO": [2 / 3, 2 / 3, -2 / 3, -2 / 3, 1, -1],
    "GRPO": [0.5 / STD_3, 0.5 / STD_3, -0.5 / STD_3, -0.5 / STD_3, 0.5 / STD_8, -0.5 / STD_8],
    "DrGRPO": [0.5, 0.5, -0.5, -0.5, 0.5, -0.5],
    "MaxRL": [1, 1, -1, -1, 1, -1],
}


@pytest.fixture
def experience():
    completions = [
        Completion(prompt, n, [1, 3], [9] * length, [-1.0] * length, "stop")
        for n, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]
    experience = from_completions(completions, range(6), 0)
    experience.rewards = torch.tensor(REWARDS)
    return experience


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name):
    module = getattr(algorithms, name)()
    read = (
        "group_size",
        "baseline",
        "advantage_scale",
        "aggregation",
        "clip_low",
        "clip_high",
        "kl_estimator",
        "kl_in",
    )
    assert tuple(getattr(module, setting) for setting in read) == DEFAULTS[name]
    assert module.beta == module.entropy_coef == 0
    assert module.needs_groups() == (name not in NEEDS_NO_GROUPS)
    assert (module.drop_zero_std, module.max_refill_rounds) == ((True, 3) if name == "DAPO" else (False, 0))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name, experience):
    advantages = getattr(algorithms, name)().compute_advantages(experience)
    assert advantages.shape == (6, 1)
    assert advantages[:, 0].tolist() == pytest.approx(ADVANTAGES[name], abs=1e-3)  # eps of the std


@pytest.mark.parametrize("name", ["DAPO", "GSPO", "CISPO", "SAPO"])
def test_these_have_the_advantages_of_grpo(name, experience):
    advantages = getattr(algorithms, name)().compute_advantages(experience)
    assert torch.equal(advantages, algorithms.GRPO().compute_advantages(experience))


@pytest.mark.parametrize("baseline", ["none", "group_mean"])
def test_reinforce_plus_plus_whitens_over_tokens(baseline, experience):
    advantages = algorithms.ReinforcePlusPlus(baseline=baseline).compute_advantages(experience)
    returns = REWARDS if baseline == "none" else ADVANTAGES["DrGRPO"]
    per_token = torch.tensor([value for value, length in zip(returns, LENGTHS, strict=True) for _ in range(length)])
    expected = (per_token - per_token.mean()) / per_token.std()
    assert advantages[experience.completion_mask].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert not advantages[~experience.completion_mask].any()


def test_a_group_is_joined_by_its_prompt_and_not_by_its_place(experience):
    mixed = experience.rows([4, 0, 2, 5, 1, 3])
    assert algorithms.GRPO().compute_advantages(mixed)[:, 0].tolist() == pytest.approx(
        [ADVANTAGES["GRPO"][row] for row in (4, 0, 2, 5, 1, 3)], abs=1e-3
    )


def test_old_log_probs_and_a_reference_are_made_only_where_they_are_used():
    assert not algorithms.GRPO().needs_old_logps()
    assert algorithms.GRPO(windows_per_phase=2).needs_old_logps()
    assert algorithms.GRPO(epochs_per_phase=2).needs_old_logps()
    assert algorithms.GRPO(beta=0.1, kl_in="reward").needs_old_logps()
    assert not algorithms.GRPO(beta=0.1).needs_old_logps()
    assert [algorithms.GRPO(beta=beta).backbone.reference_kind for beta in (0.0, 0.1)] == ["none", "copy"]
    assert algorithms.GRPO(beta=0.1, lora={"r": 2}).backbone.reference_kind == "adapter_off"
    assert algorithms.GRPO(beta=0.1, lora={"r": 2}, reference="copy").backbone.reference_kind == "copy"


def test_maxrl_says_that_it_needs_rewards_that_are_not_negative(experience):
    experience.rewards[2] = -0.5
    with pytest.raises(UserError, match=r"model.rewards: MaxRL .* got -0.5"):
        algorithms.MaxRL().compute_advantages(experience)


UNUSED = [
    ("Reinforce", "clip_low", 0.1),
    ("ReinforcePlusPlus", "advantage_scale", "group"),
    ("GSPO", "clip_dual", 3.0),
    ("CISPO", "clip_dual", 3.0),
    ("SAPO", "clip_high", 0.28),
    ("MaxRL", "baseline", "leave_one_out"),
]


@pytest.mark.parametrize(("name", "setting", "value"), UNUSED)
def test_a_setting_that_a_class_does_not_use_is_refused(name, setting, value):
    with pytest.raises(UserError, match=f"model.{setting}: {name} does not use it"):
        getattr(algorithms, name)(**{setting: value})
    default = getattr(getattr(algorithms, name)(), setting)
    getattr(algorithms, name)(**{setting: default})  # as a saved config writes it


def test_what_is_known_of_step_zero_goes_by_the_names_of_metrics():
    known = [algorithms.GRPO(beta=beta).step0_values() for beta in (0.0, 0.1)]
    assert known == [{"ratio/mean": 1.0}, {"ratio/mean": 1.0, "kl": 0.0}]
    assert all(describe(name) for name in known[1])
