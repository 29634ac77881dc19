"""Checkpoints hold what is trained and nothing else, and survive strict loading and Lightning's EMA."""

import copy

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch.utils.data import DataLoader

from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf_callbacks.errors import UserError

KINDS = pytest.mark.parametrize(
    ("reference", "lora"),
    [("none", None), ("copy", None), ("none", LoRA(r=2)), ("copy", LoRA(r=2)), ("adapter_off", LoRA(r=2))],
)


class Finetune(LightningModule):
    """Raises the log-probs of fixed rows; enough to have weights, an optimiser and checkpoints."""

    def __init__(self, folder, **settings):
        super().__init__()
        self.backbone = Backbone(folder, **settings)

    def configure_model(self):
        self.backbone.load()

    def configure_optimizers(self):
        return torch.optim.AdamW([weight for weight in self.parameters() if weight.requires_grad], lr=1e-2)

    def training_step(self, batch, batch_idx):
        return -self.backbone.score_tokens(*batch).logps.sum()

    def on_save_checkpoint(self, checkpoint):
        checkpoint["start_policy"] = self.backbone.checkpoint_facts()

    def on_load_checkpoint(self, checkpoint):
        self.backbone.check_checkpoint_facts(checkpoint["start_policy"])


def fit(folder, rows, root, num_steps, *, callbacks=(), ckpt_path=None, **settings):
    """Train and keep a checkpoint of every step; returns the module."""
    torch.manual_seed(0)  # for the adapters
    module = Finetune(folder, **settings)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=num_steps,
        logger=False,
        callbacks=[*callbacks, ModelCheckpoint(root, "{step}", save_top_k=-1, every_n_train_steps=1)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader([tuple(rows)] * 10, batch_size=None), ckpt_path=ckpt_path)
    return module


@KINDS
def test_state_dict_holds_the_trained_weights_only(make_folder, reference, lora):
    backbone = Backbone(make_folder(), reference=reference, lora=lora)
    backbone.load()
    trained = {name for name, weight in backbone.named_parameters(remove_duplicate=False) if weight.requires_grad}
    assert set(backbone.state_dict()) == trained
    assert trained


@KINDS
def test_strict_load_refills_what_was_left_out(make_folder, rows, reference, lora):
    folder = make_folder()
    first, second = (Backbone(folder, reference=reference, lora=lora) for _ in range(2))
    first.load()
    second.load()
    with torch.no_grad():
        for weight in first.policy.parameters():
            if weight.requires_grad:
                weight.add_(0.05)
    second.load_state_dict(copy.deepcopy(first.state_dict()), strict=True)
    assert torch.equal(first.score_tokens(*rows).logps, second.score_tokens(*rows).logps)
    if reference != "none":
        expected = first.score_tokens(*rows, reference=True).logps
        assert torch.equal(second.score_tokens(*rows, reference=True).logps, expected)


def test_a_foreign_checkpoint_cannot_replace_the_reference(make_folder, rows):
    backbone = Backbone(make_folder(), reference="copy")
    backbone.load()
    expected = backbone.score_tokens(*rows, reference=True).logps
    state = copy.deepcopy(backbone.state_dict())
    state |= {name.replace("policy.", "reference."): torch.zeros_like(value) for name, value in state.items()}
    backbone.load_state_dict(state, strict=True)
    assert torch.equal(backbone.score_tokens(*rows, reference=True).logps, expected)


@KINDS
@pytest.mark.parametrize("with_ema", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_lightning_resumes_as_if_never_stopped(make_folder, rows, tmp_path, reference, lora, with_ema):
    settings = {"reference": reference, "lora": lora}

    def run(root, **more):
        callbacks = [EMAWeightAveraging(decay=0.5)] if with_ema else []
        return fit(folder, rows, root, 3, callbacks=callbacks, **settings, **more).backbone

    folder = make_folder()
    straight = run(tmp_path / "straight")
    saved = torch.load(tmp_path / "straight/step=1.ckpt", weights_only=True)
    assert not any("reference" in name or "base_layer" in name for name in saved["state_dict"])
    assert ("current_model_state" in saved) == with_ema
    resumed = run(tmp_path / "resumed", ckpt_path=tmp_path / "straight/step=1.ckpt")
    assert torch.equal(resumed.score_tokens(*rows).logps, straight.score_tokens(*rows).logps)
    start = Backbone(folder)
    start.load()
    assert not torch.equal(resumed.score_tokens(*rows).logps, start.score_tokens(*rows).logps)
    if reference != "none":
        expected = start.score_tokens(*rows).logps
        assert torch.equal(resumed.score_tokens(*rows, reference=True).logps, expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_a_resume_from_other_start_weights_is_refused(make_folder, rows, tmp_path):
    fit(make_folder(seed=0), rows, tmp_path / "a", 1)
    with pytest.raises(UserError, match="is not what this run started from") as error:
        fit(make_folder(seed=1), rows, tmp_path / "b", 2, ckpt_path=tmp_path / "a/step=1.ckpt")
    assert "\n" not in str(error.value)


def test_start_hash_is_of_the_weights_before_lora_and_training(make_folder, rows):
    folder = make_folder()
    full, adapted, other = Backbone(folder), Backbone(folder, lora=LoRA(r=2)), Backbone(make_folder(seed=1))
    for backbone in (full, adapted, other):
        backbone.load()
    assert full.start_hash == adapted.start_hash != other.start_hash
    assert full.checkpoint_facts() == {"source": folder, "start_hash": full.start_hash}


def test_start_hash_of_a_merged_adapter_is_of_what_went_in(make_folder, tmp_path):
    hashes = []
    for base_seed, adapter_seed in ((0, 0), (0, 1), (1, 0), (0, 0)):
        torch.manual_seed(adapter_seed)
        adapted = Backbone(make_folder(seed=base_seed), lora=LoRA(r=2))
        torch.manual_seed(adapter_seed)
        adapted.load()
        folder = tmp_path / f"adapter{len(hashes)}"
        adapted.save_model(folder, merge_adapter=False)
        merged = Backbone(str(folder))
        merged.load()
        hashes.append(merged.start_hash)
    assert hashes[0] == hashes[3]
    assert len(set(hashes)) == 3
