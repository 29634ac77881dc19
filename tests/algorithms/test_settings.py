"""Settings survive a YAML and a checkpoint, and what is no plain value is left out of both."""

from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule

from lit_rlhf.algorithms.settings import as_factory, as_settings, save_plain_hyperparameters
from lit_rlhf.rollout import Sampling


def test_a_dict_becomes_the_settings_it_was_saved_from():
    sampling = Sampling(temperature=0.5, max_new_tokens=3)
    assert as_settings(Sampling, {"temperature": 0.5, "max_new_tokens": 3}) == sampling
    assert as_settings(Sampling, sampling) is sampling


def test_a_factory_is_a_function_or_what_a_yaml_says():
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    written = as_factory({"class_path": "torch.optim.SGD", "init_args": {"lr": 0.25}})(parameters)
    passed = as_factory(lambda p: torch.optim.SGD(p, lr=0.25))(parameters)
    assert type(written) is type(passed) is torch.optim.SGD
    assert written.defaults == passed.defaults


def test_only_plain_values_are_saved():
    @dataclass(eq=False, repr=False, kw_only=True)
    class Module(LightningModule):
        rate: float = 0.1
        sampling: Sampling | None = None
        function: object = None
        rewards: object = None

        def __post_init__(self):
            super().__init__()
            save_plain_hyperparameters(self)

    module = Module(sampling=Sampling(top_k=5), function=print, rewards=["exact_match", {"function": "format"}])
    assert dict(module.hparams) == {
        "rate": 0.1,
        "sampling": {"temperature": 1.0, "top_k": 5, "top_p": 1.0, "max_new_tokens": 64},
        "rewards": ["exact_match", {"function": "format"}],
    }
    assert module.sampling == Sampling(top_k=5)  # the module itself keeps what it was given
