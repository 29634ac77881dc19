"""The same algorithms, broken the way a user would break them: each fault is named within three updates."""

import copy

import pytest
import torch
from checked_runs import data_for, run

from lit_rlhf import PromptData, algorithms
from lit_rlhf.functional.preference_losses import PreferenceLoss
from lit_rlhf.rollout import Sampling


def flipped(name):
    """Derive an algorithm whose loss has the wrong sign."""

    class Flipped(getattr(algorithms, name)):
        def window_share(self, *args):
            share, shown = super().window_share(*args)
            return -share, shown

    return Flipped


ADVANTAGES, PAIRS = ["GRPO", "RLOO", "SFT"], ["DPO", "KTO", "BradleyTerry"]


@pytest.mark.parametrize("name", ADVANTAGES + PAIRS)
def test_a_flipped_loss(name):
    cause = "pairs_swapped" if name in PAIRS else "advantage_sign"
    checked, _ = run(flipped(name))
    assert ("update_direction", "sign_flipped", cause) in checked.failures()


@pytest.mark.parametrize("name", ["GRPO", "RLOO", "Reinforce"])
def test_advantages_upside_down(name):
    class UpsideDown(getattr(algorithms, name)):
        def reward_advantages(self, rewards, prompt_ids):
            return -super().reward_advantages(rewards, prompt_ids)

    checked, _ = run(UpsideDown)
    assert checked.failures() == {("advantages_follow_rewards", "sign_flipped", "advantage_sign")}


@pytest.mark.parametrize("sign", [1, -1])
def test_advantages_of_prompts_with_one_completion_each(sign):
    class Signed(algorithms.Reinforce):
        def reward_advantages(self, rewards, prompt_ids):
            return sign * super().reward_advantages(rewards, prompt_ids)

    checked, _ = run(Signed, group_size=1, data=PromptData(prompts_per_phase=32, num_eval=4))
    wrong = {("advantages_follow_rewards", "sign_flipped", "advantage_sign")}
    assert checked.failures() == (wrong if sign < 0 else set())
    assert "over all rows" in checked.of("advantages_follow_rewards")[0].summary


@pytest.mark.parametrize("name", ["DPO", "IPO"])
def test_chosen_and_rejected_swapped_in_the_loss(name):
    class Swapped(getattr(algorithms, name)):
        def pair_loss(self, logps):
            return super().pair_loss(
                type(logps)(
                    chosen=logps.rejected,
                    rejected=logps.chosen,
                    ref_chosen=logps.ref_rejected,
                    ref_rejected=logps.ref_chosen,
                )
            )

    assert run(Swapped)[0].causes() == {("sign_flipped", "pairs_swapped")}


def train_the_reference(module):
    module.backbone.reference = module.backbone.policy


def shake_the_reference(module):
    for parameter in module.backbone.reference.parameters():
        parameter.data.mul_(1.05)


@pytest.mark.parametrize(("name", "settings"), [("GRPO", {"beta": 0.05}), ("DPO", {}), ("KTO", {})])
def test_a_reference_that_is_trained(name, settings):
    checked, _ = run(name, change=train_the_reference, **settings)
    assert ("reference_unmoved", "reference_moved", "reference_trained") in checked.failures()
    assert checked.of("reference_is_start")[0].status == "ok"


@pytest.mark.parametrize(("name", "settings"), [("GRPO", {"beta": 0.05}), ("DPO", {}), ("IPO", {}), ("KTO", {})])
def test_a_reference_that_is_another_model(name, settings):
    checked, _ = run(name, change=shake_the_reference, **settings)
    assert ("reference_is_start", "reference_not_start", "reference_not_start") in checked.failures()
    assert checked.of("reference_unmoved")[-1].status == "ok"


def turn_dropout_on(module):
    for submodule in module.backbone.policy.modules():
        if hasattr(submodule, "attention_dropout"):
            submodule.attention_dropout = 0.2


@pytest.mark.parametrize("name", ["DPO", "GRPO"])
def test_dropout_in_the_policy(name):
    checked, _ = run(name, change=turn_dropout_on, **({"beta": 0.05} if name == "GRPO" else {}))
    assert ("reference_is_start", "reference_not_start", "dropout_on") in checked.failures()
    assert {cause for _, cause in checked.causes()} == {"dropout_on"}


def test_a_loss_computed_another_way():
    class Shifted(algorithms.DPO):
        def pair_loss(self, logps):
            result = super().pair_loss(logps)
            return PreferenceLoss(result.losses * 1.5, result.chosen_rewards, result.rejected_rewards)

    class OtherBeta(algorithms.IPO):
        def pair_loss(self, logps):
            before, self.beta = self.beta, 2 * self.beta
            result = super().pair_loss(logps)
            self.beta = before
            return result

    for kind in (Shifted, OtherBeta):
        checked, _ = run(kind)
        assert ("start_values", "loss_off_at_start", "beta_wrong_scale") in checked.failures()


def test_a_table_of_another_reference():
    class OtherTable(algorithms.DPO):
        def _load_table(self, split):
            super()._load_table(split)
            self.ref_tables[split] = {row: values * 1.2 for row, values in self.ref_tables[split].items()}

    checked, _ = run(OtherTable, reference="precomputed")
    assert ("reference_is_start", "reference_not_start", "wrong_reference_cache") in checked.failures()
    assert run("DPO", reference="precomputed")[0].failures() == set()


class WarmSampler:
    """Samples, and says how likely that was, at another temperature than it is asked for."""

    def __init__(self, sampler):
        self.sampler = sampler

    def generate(self, prompts, num_samples, sampling, key):
        changed = Sampling(temperature=1.5 * sampling.temperature, max_new_tokens=sampling.max_new_tokens)
        return self.sampler.generate(prompts, num_samples, changed, key)


def sample_from(make):
    def change(module):
        module.sampler = module.collector.scorer.sampler = make(module)

    return change


@pytest.mark.parametrize("name", ["GRPO", "RLOO"])
def test_a_sampler_of_another_temperature(name):
    checked, _ = run(name, change=sample_from(lambda module: WarmSampler(module.sampler)))
    assert ("sampler_agrees", "sampler_mismatch", "temperature_mismatch") in checked.failures()


@pytest.mark.parametrize("name", ["GRPO", "RLOO"])
def test_a_sampler_that_keeps_its_first_weights(name):
    def frozen(module):
        sampler = copy.copy(module.sampler)
        sampler.backbone = copy.deepcopy(module.backbone)
        return sampler

    checked, _ = run(name, change=sample_from(frozen))
    assert [result.status for result in checked.of("sampler_agrees")] == ["ok", "failed", "failed"]
    assert checked.causes() == {("sampler_mismatch", "stale_sampler_weights")}


def test_steps_too_small_for_the_weights():
    def lower(module):
        module.backbone.policy.to(torch.bfloat16)

    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-8, "weight_decay": 0.0}}
    half, _ = run("SFT", change=lower, optimizer=optimizer)
    assert ("update_reaches_weights", "updates_swallowed", "bf16_weights") in half.failures()
    optimizer["init_args"]["lr"] = 1e-12
    whole, _ = run("DPO", optimizer=optimizer)
    assert whole.causes() == {("updates_swallowed", "learning_rate_too_low")}


@pytest.mark.parametrize("name", ["SFT", "DPO"])
def test_a_loss_that_teaches_nothing(name):
    class Cut(getattr(algorithms, name)):
        def window_share(self, *args):
            share, shown = super().window_share(*args)
            return share * 0.0, shown

    assert ("update_reaches_weights", "no_update", "zero_gradient") in run(Cut)[0].failures()


@pytest.mark.parametrize("factor", [-1.0, 0.1])
def test_a_kl_of_another_estimator(factor):
    class OtherKL(algorithms.GRPO):
        def measure(self, shown):
            ratio = shown["logps"] - shown["ref_logps"]
            super().measure({**shown, "kl": -ratio if factor < 0 else ratio.square() / 2})

    checked, _ = run(OtherKL, beta=0.05)
    causes = {cause for kind, cause in checked.causes() if kind == "kl_estimator_wrong"}
    assert causes == {"kl_sign"} if factor < 0 else causes <= {"kl_not_k3"}


def test_rewards_that_depend_on_the_place_in_the_batch():
    class Placed(algorithms.BradleyTerry):
        def rewards(self, tensors):
            scores = super().rewards(tensors)
            return scores + 0.1 * torch.arange(len(scores))

    assert ("reward_model_swap", "reward_model_order", "depends_on_place") in run(Placed)[0].failures()


def test_held_out_prompts_that_are_trained_on(tmp_path):
    rows = [f'{{"prompt": "reverse {"abc"[i % 3]}{i}", "answer": "{i}"}}' for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    module_data = data_for(algorithms.GRPO())
    module_data.prompts = module_data.eval_prompts = str(tmp_path / "rows.jsonl")
    checked, _ = run("GRPO", data=module_data, updates=1)
    assert ("held_out_prompts", "eval_contamination", "train_rows_in_eval") in checked.failures()
