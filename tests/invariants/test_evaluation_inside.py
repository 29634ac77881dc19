"""An evaluation within a phase leaves the run as if it had not been: weights, samples, modes, random states."""

import pytest
import torch
from lightning.pytorch import Callback
from short_runs import optimizer


class States(Callback):
    """What an evaluation could have changed, before and after it."""

    def __init__(self):
        self.before, self.after = [], []

    def on_validation_start(self, trainer, pl_module):
        self.before.append(self.read(pl_module))

    def on_validation_end(self, trainer, pl_module):
        self.after.append(self.read(pl_module))

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        assert all(module.training for module in pl_module.backbone.policy.modules())
        assert torch.is_grad_enabled()

    @staticmethod
    def read(module):
        experience = module.experience.state_dict() if module.experience is not None else {}
        return {**experience, "rng": torch.get_rng_state(), "phase": torch.tensor(module.phase)}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_run_goes_on_as_without(algorithm, run, accumulate):
    settings = {
        "windows_per_phase": 2,
        "epochs_per_phase": 2,
        "updates": 6,
        "accumulate": accumulate,
        "beta": 0.1,
        "optimizer": optimizer("AdamW", 1e-2),
    }
    without, states = run(algorithm, **settings), States()
    evaluation = {"limit_val_batches": 1.0, "val_check_interval": accumulate}
    evaluated = run(algorithm, callbacks=[states], trainer=evaluation, **settings)
    assert len(states.before) == 7  # before the first update, and after each
    for before, after in zip(states.before, states.after, strict=True):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert sum("advantages" in state for state in states.before) == 5  # in the middle of a phase
    assert all(torch.equal(evaluated.weights[name], without.weights[name]) for name in without.weights)
    assert evaluated.metrics == without.metrics
    assert evaluated.logged["eval/n"] == 3


def test_every_evaluation_of_the_same_weights_samples_the_same(run):
    """So that the held-out curve shows what was learned and no luck of its own."""

    rewards = []

    class Collect(Callback):
        def on_validation_end(self, trainer, pl_module):
            rewards.append(float(trainer.callback_metrics["eval/reward"]))

    evaluation = {"limit_val_batches": 1.0, "val_check_interval": 1}
    run("GRPO", updates=3, callbacks=[Collect()], trainer=evaluation, optimizer=optimizer("SGD", 0.0))
    assert len(rewards) == 4
    assert len(set(rewards)) == 1
