"""Forwards that keep ranks in step touch everything, and scoring in parts scores the same."""

import pytest
import torch

from lit_rlhf.algorithms.forwards import dummy_share, join_shown, score_experience
from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.rollout.experience import from_completions
from lit_rlhf.rollout.protocol import Completion


def loaded(**settings):
    backbone = Backbone("builtin:tiny", **settings)
    backbone.load()
    return backbone


@pytest.fixture(scope="module")
def backbone():
    return loaded(reference="copy")


@pytest.mark.parametrize("lora", [None, LoRA(r=2)])
def test_a_dummy_gives_every_trainable_parameter_a_gradient_of_zero(lora):
    backbone = loaded(lora=lora)
    share = dummy_share(backbone)
    share.backward()
    assert share == 0
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    assert trained
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in trained)


@pytest.mark.parametrize("reference", [False, True])
def test_scoring_does_not_depend_on_the_parts_it_is_done_in(backbone, reference):
    lengths = [(3, 7), (9, 2), (1, 12), (5, 5)]
    completions = [
        Completion(n, 0, list(range(40, 40 + p)), list(range(60, 60 + c)), [0.0] * c, "stop")
        for n, (p, c) in enumerate(lengths)
    ]
    experience = from_completions(completions, range(4), 0)
    whole, cut = (
        score_experience(backbone, experience, budget, temperature=0.7, reference=reference) for budget in (None, 14)
    )
    assert torch.allclose(whole, cut, atol=1e-5)
    assert torch.equal(whole != 0, experience.completion_mask)
    assert not whole.requires_grad


def test_no_rows_have_no_scores(backbone):
    experience = from_completions([], [], 0)
    assert score_experience(backbone, experience, None, temperature=1.0, reference=False).shape == (0, 1)


def test_parts_are_joined_at_the_width_of_the_widest():
    wide = {"input_ids": torch.ones(1, 4, dtype=torch.long), "logps": torch.ones(1, 4), "rewards": torch.tensor([1.0])}
    narrow = {"input_ids": torch.ones(2, 3, dtype=torch.long), "logps": torch.ones(2, 3), "rewards": torch.zeros(2)}
    joined = join_shown([wide, {}, narrow])
    assert joined["logps"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert joined["rewards"].tolist() == [1, 0, 0]
    assert join_shown([{}, {}]) == {}
