"""Design §11.4: samples without a reward are dropped and counted; more than half of a phase ends the run."""

import pytest
from lightning.pytorch import Trainer

from lit_rlhf.algorithms import DAPO, GRPO
from lit_rlhf.data import PromptData
from lit_rlhf.rollout import Sampling
from lit_rlhf_callbacks.errors import UserError


def train(algorithm, reward, **settings):
    module = algorithm(rewards=[reward], group_size=2, sampling=Sampling(max_new_tokens=4), **settings)
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(accelerator="cpu", devices=1, max_steps=1, limit_val_batches=0, **quiet)
    trainer.fit(module, PromptData(prompts_per_phase=4, limit=16))
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def scores_all_but(share):
    """Return a reward that does not apply to a share of the prompts, in the order it meets them."""
    seen: dict[int, int] = {}

    def reward(prompt_id, completion_ids, **columns):
        places = [seen.setdefault(number, len(seen)) for number in prompt_id]
        pairs = zip(places, completion_ids, strict=True)
        return [None if place % 4 < 4 * share else float(sum(ids) % 5) for place, ids in pairs]

    return reward


def test_half_of_a_phase_without_a_reward_is_dropped_and_counted():
    assert train(GRPO, scores_all_but(0.5))["rewards/num_dropped"] == 4


def test_more_than_half_of_a_phase_ends_the_run_with_the_reason():
    with pytest.raises(UserError, match=r"6 of 8 completions of a phase have no valid reward: .* returned None"):
        train(GRPO, scores_all_but(0.75))


def test_a_refill_that_no_function_applies_to_is_weighed_with_the_whole_phase():
    applies = iter([True] * 4 + [False] * 100)
    known: dict[int, bool] = {}

    def only_at_first(prompt_id, **columns):
        return [1.0 if known.setdefault(n, next(applies) if n not in known else True) else None for n in prompt_id]

    metrics = train(DAPO, only_at_first, max_refill_rounds=1)  # equal rewards: every group is to be replaced
    assert metrics["dynamic_sampling/missing_prompts"] == 4
