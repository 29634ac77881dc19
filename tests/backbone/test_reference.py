"""The reference is the start policy, whatever happens to the policy; and the policy is it until the first update."""

import pytest
import torch

from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.backbone.adapters import adapters_off
from lit_rlhf_callbacks.errors import UserError

KINDS = pytest.mark.parametrize(
    ("reference", "lora"), [("copy", None), ("copy", LoRA(r=2)), ("adapter_off", LoRA(r=2))]
)


def loaded(folder: str, **settings) -> Backbone:
    backbone = Backbone(folder, **settings)
    backbone.load()
    return backbone


def shift_trained_weights(backbone: Backbone) -> None:
    with torch.no_grad():
        for weight in backbone.policy.parameters():
            if weight.requires_grad:
                weight.add_(0.1)


@KINDS
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_policy_equals_reference_at_the_start_in_train_mode(make_folder, rows, architecture, reference, lora):
    backbone = loaded(make_folder(architecture), reference=reference, lora=lora)  # GPT-2: dropout 0.1 in its config
    assert backbone.policy.training
    first = backbone.score_tokens(*rows).logps
    assert torch.equal(first, backbone.score_tokens(*rows).logps)  # ratio exactly 1
    assert torch.equal(first, backbone.score_tokens(*rows, reference=True).logps)  # KL exactly 0


@KINDS
def test_reference_stays_the_start_policy_when_the_policy_changes_in_memory(make_folder, rows, reference, lora):
    backbone = loaded(make_folder(), reference=reference, lora=lora)
    start = backbone.score_tokens(*rows).logps
    shift_trained_weights(backbone)
    backbone.load()  # a second call must not make a second start
    assert (backbone.score_tokens(*rows).logps - start).abs().max() > 0.1
    assert torch.equal(backbone.score_tokens(*rows, reference=True).logps, start)


def test_dropout_is_kept_when_asked_for_but_never_in_the_reference(make_folder, rows):
    for reference, lora in (("copy", None), ("adapter_off", LoRA(r=2))):
        backbone = loaded(make_folder("gpt2"), dropout=True, reference=reference, lora=lora)
        assert not torch.equal(backbone.score_tokens(*rows).logps, backbone.score_tokens(*rows).logps)
        first, second = (backbone.score_tokens(*rows, reference=True).logps for _ in range(2))
        assert torch.equal(first, second)


def test_attention_dropout_that_is_no_module_is_zeroed_too(make_folder, rows):
    folder = make_folder("llama", attention_dropout=0.5)
    backbone = loaded(folder)
    assert torch.equal(backbone.score_tokens(*rows).logps, backbone.score_tokens(*rows).logps)
    kept = loaded(folder, dropout=True)
    assert not torch.equal(kept.score_tokens(*rows).logps, kept.score_tokens(*rows).logps)


@KINDS
def test_reference_is_never_trained(make_folder, rows, reference, lora):
    backbone = loaded(make_folder(), reference=reference, lora=lora)
    backbone.train()
    assert backbone.reference is None or not backbone.reference.training
    scores = backbone.score_tokens(*rows, reference=True)
    assert not scores.logps.requires_grad
    backbone.score_tokens(*rows).logps.sum().backward()
    trained = {name for name, weight in backbone.named_parameters() if weight.grad is not None}
    assert trained
    assert not any(name.startswith("reference") for name in trained)
    assert lora is None or all("lora_" in name for name in trained)


def test_adapters_come_back_after_an_exception(make_folder, rows):
    backbone = loaded(make_folder(), reference="adapter_off", lora=LoRA(r=2))
    shift_trained_weights(backbone)
    before = backbone.score_tokens(*rows).logps
    trainable = [name for name, weight in backbone.named_parameters() if weight.requires_grad]

    def fail_with_adapters_off():
        with adapters_off(backbone.policy):
            assert not torch.equal(backbone.score_tokens(*rows).logps, before)
            raise KeyError

    with pytest.raises(KeyError):
        fail_with_adapters_off()
    assert torch.equal(backbone.score_tokens(*rows).logps, before)
    assert all(module.training for module in backbone.policy.modules())
    assert trainable == [name for name, weight in backbone.named_parameters() if weight.requires_grad]


def test_a_start_policy_that_is_an_adapter_is_merged_and_is_the_reference(make_folder, rows, tmp_path):
    first = loaded(make_folder(), lora=LoRA(r=2))
    shift_trained_weights(first)
    trained = first.score_tokens(*rows).logps
    first.save_model(tmp_path / "adapter", merge_adapter=False)

    second = loaded(str(tmp_path / "adapter"), lora=LoRA(r=2), reference="adapter_off")
    torch.testing.assert_close(second.score_tokens(*rows).logps, trained, atol=1e-4, rtol=0)
    shift_trained_weights(second)
    torch.testing.assert_close(second.score_tokens(*rows, reference=True).logps, trained, atol=1e-4, rtol=0)
    with pytest.raises(UserError, match="save with the adapter merged"):
        second.save_model(tmp_path / "third", merge_adapter=False)


def test_a_reference_that_cannot_be_is_an_error(make_folder, rows):
    with pytest.raises(UserError, match="needs adapters to turn off"):
        Backbone(make_folder(), reference="adapter_off")
    with pytest.raises(ValueError, match="has no reference"):
        loaded(make_folder()).score_tokens(*rows, reference=True)
