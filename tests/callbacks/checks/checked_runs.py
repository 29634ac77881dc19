"""Real short trainings with the exact checks on. Plain functions, for tests to import by name."""

import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from lit_rlhf import algorithms
from lit_rlhf.data import PreferenceData, PromptData, SupervisedData
from lit_rlhf_callbacks.checks.schedule import ExactChecks
from lit_rlhf_callbacks.symptoms import KINDS

LR = {"GRPO": 4e-4, "RLOO": 2e-4, "DPO": 1e-4, "KTO": 2e-4, "ORPO": 2e-4, "SFT": 5e-4}
QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    "check_val_every_n_epoch": None,
    "logger": False,
    "enable_progress_bar": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
}


class Checked(Callback):
    """Calls the checks as the doctor does."""

    def __init__(self):
        self.checks, self.results, self.step = ExactChecks(), [], 0

    def on_train_start(self, trainer, pl_module):
        self.step = trainer.global_step
        self.results += self.checks.on_train_start(trainer, pl_module)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.checks.before_update(trainer, pl_module)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == self.step:
            self.checks.after_micro_batch(trainer, pl_module, outputs, batch)
            return
        self.step = trainer.global_step
        self.results += self.checks.after_update(trainer, pl_module, outputs, batch)

    def state_dict(self):
        return self.checks.state_dict()

    def load_state_dict(self, state):
        self.checks.load_state_dict(state)

    def of(self, name):
        """Results of one check, in order."""
        return [result for result in self.results if result.name == name]

    def failures(self):
        """What failed: name, kind, cause, each of which the catalogue must know."""
        for result in self.results:
            assert result.status != "failed" or result.cause in {cause.id for cause in KINDS[result.kind].causes}
        return {(result.name, result.kind, result.cause) for result in self.results if result.status == "failed"}

    def causes(self):
        """Kinds and causes of what failed."""
        return {(kind, cause) for _, kind, cause in self.failures()}


def algorithm(name, **settings):
    """Make an algorithm by its class name, or of a class derived from one, with a learning rate that moves it."""
    kind = getattr(algorithms, name) if isinstance(name, str) else name
    lr = next((LR[base.__name__] for base in kind.__mro__ if base.__name__ in LR), 5e-4)
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": lr, "weight_decay": 0.0}}
    short = {"temperature": 1.0, "max_new_tokens": 12}
    online = {"group_size": 4, "sampling": short, "eval_sampling": short} if hasattr(kind, "collect") else {}
    if any(base.__name__ == "SFT" for base in kind.__mro__):
        online = {"num_stop_prompts": 0}
    return kind(**{"optimizer": optimizer, **online, **settings})


def data_for(module):
    """Make the embedded data that an algorithm learns from."""
    if hasattr(module, "collect"):
        return PromptData(prompts_per_phase=8, num_eval=4)
    kinds = {"supervised": SupervisedData}
    return kinds.get(module.data_kind, PreferenceData)(
        train="builtin:reverse_words", limit=400, num_eval=4, examples_per_update=16
    )


def run(name, *, change=None, updates=3, data=None, callbacks=(), trainer=None, seed=1, ckpt_path=None, **settings):
    """Train with the checks on.

    Args:
        name: An algorithm's class name, or a class derived from one.
        change: A function of the module, called when its weights are loaded.
        updates: When to stop.
        data: A DataModule; None makes the embedded one.
        callbacks: Besides the one that checks, which is last.
        trainer: Further settings of the `Trainer`.
        seed: The run's seed.
        ckpt_path: What to resume.
        settings: Of the algorithm.

    Returns:
        The callback with all results, and the module.
    """
    seed_everything(seed, verbose=False)
    module = algorithm(name, **settings)
    if change is not None:
        module.configure_model()
        change(module)
    checked = Checked()
    runner = Trainer(**{**QUIET, "max_steps": updates, "callbacks": [*callbacks, checked], **(trainer or {})})
    runner.fit(module, data if data is not None else data_for(module), ckpt_path=ckpt_path)
    return checked, module


def weights_of(module):
    """Copy the trained weights."""
    return torch.cat([p.detach().flatten().clone() for p in module.parameters() if p.requires_grad])
