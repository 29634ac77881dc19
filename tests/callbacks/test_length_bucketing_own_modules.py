"""Modules that compute micro-batches in parts themselves: their budget is tried and set, their loader left alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything

from lit_rlhf import DPO, GRPO, SFT, PreferenceData, PromptData, SupervisedData
from lit_rlhf_callbacks import LengthBucketing, UserError

Train = Callable[..., tuple[Trainer, LightningModule]]
SMALL: dict[str, Any] = {"options": {"num_rows": 64}, "num_eval": 8, "examples_per_update": 8}


@pytest.fixture
def train(tmp_path: Any) -> Train:
    def run(make: Callable[[], LightningModule], data: Any, callbacks: list[Any], **settings: Any) -> Any:
        seed_everything(0, verbose=False)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        place = {"accelerator": "cpu", "devices": 1, "default_root_dir": tmp_path, "num_sanity_val_steps": 0}
        trainer = Trainer(
            callbacks=callbacks,
            max_steps=2,
            limit_val_batches=0,
            enable_model_summary=False,
            **quiet,
            **place,
            **settings,
        )
        module = make()
        trainer.fit(module, data)
        return trainer, module

    return run


def scarce(cls: type, room: int, seen: list[int]) -> Callable[[], LightningModule]:
    """A class of ours whose forwards fit only so many padded tokens."""

    class Scarce(cls):  # type: ignore[misc]
        def window_share(self, tensors: Any, batch: Any) -> Any:
            seen.append(tensors["input_ids"].numel())
            if seen[-1] > room:
                raise torch.OutOfMemoryError(f"{seen[-1]} tokens")
            return super().window_share(tensors, batch)

    return Scarce


def weights(module: LightningModule) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters() if parameter.requires_grad])


@pytest.mark.parametrize(("cls", "data"), [(SFT, SupervisedData), (DPO, PreferenceData)])
def test_the_budget_is_found_before_the_first_update_and_changes_no_gradient(
    train: Train, cls: type, data: type
) -> None:
    _, plain = train(cls, data(**SMALL), [], accumulate_grad_batches=2)
    _, tried = train(cls, data(**SMALL), [LengthBucketing()], accumulate_grad_batches=2)
    assert torch.equal(weights(plain), weights(tried))

    seen: list[int] = []
    callback = LengthBucketing()
    trainer, cut = train(scarce(cls, 60, seen), data(**SMALL), [callback], accumulate_grad_batches=2)
    failures = [place for place, tokens in enumerate(seen) if tokens > 60]
    assert failures == list(range(len(failures)))  # all in the dry run, before anything else
    assert callback.limit.max_tokens is not None
    assert cut.max_tokens_per_forward == callback.limit.max_tokens <= 60
    assert (weights(plain) - weights(cut)).abs().max() < 1e-5
    assert 0 <= trainer.callback_metrics["padding/waste"] < 1


def test_a_given_budget_is_set(train: Train) -> None:
    seen: list[int] = []
    train(scarce(SFT, 10**6, seen), SupervisedData(**SMALL), [LengthBucketing(max_tokens=100)])
    assert max(seen) <= 100

    _, grpo = train(
        lambda: GRPO(rewards=["exact_match"], group_size=2),
        PromptData(options={"num_rows": 64}, num_eval=8, prompts_per_phase=2),
        [LengthBucketing(max_tokens=100)],
    )
    assert grpo.max_tokens_per_forward == 100


def test_rows_that_cannot_be_cut_further_stop_with_one_line(train: Train) -> None:
    with pytest.raises(UserError, match=r"dry run before the first update; \d+ padded tokens cannot be cut") as error:
        train(scarce(SFT, 3, []), SupervisedData(**SMALL), [LengthBucketing()])
    assert "\n" not in str(error.value)
