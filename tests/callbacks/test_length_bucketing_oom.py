"""Memory that runs out, in the forward and in the backward: the gradient is that of the batch computed whole."""

from collections import UserDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from length_bucketing_runs import Later, Memory, Project, collate, lengths
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from lit_rlhf_callbacks import LengthBucketing, UserError

Fit = Callable[..., tuple[Trainer, LightningModule]]
ROWS = lengths(24)


def gradients(module: LightningModule) -> list[Tensor]:
    return [torch.cat([g.flatten() for g in named.values()]) for named in module.gradients]


def assert_same_gradients(module: LightningModule, other: LightningModule, tolerance: float = 1e-6) -> None:
    assert len(module.gradients) == len(other.gradients) > 1
    for mine, theirs in zip(gradients(module), gradients(other), strict=True):
        assert (mine - theirs).abs().max() <= tolerance


@pytest.mark.parametrize("place", ["forward", "backward"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(fit: Fit, place: str, accumulate: int) -> None:
    """Without dropout, label counts uneven; the dry run learns the limit, so later batches are cut before they fail."""
    settings = {"max_steps": 6, "accumulate_grad_batches": accumulate}
    _, whole = fit(lambda: Project(ROWS, Memory()), [LengthBucketing()], **settings)
    memory = Memory(**{place: 90})
    trainer, parts = fit(lambda: Project(ROWS, memory), [LengthBucketing()], **settings)

    assert [failed for failed, _ in memory.failures] == [place]  # in the dry run, and never again
    assert parts.seen == whole.seen
    assert_same_gradients(parts, whole)
    assert trainer.callback_metrics["padding/num_split"] > 0
    assert parts.num_rows.compute() == whole.num_rows.compute() == sum(map(len, whole.seen))
    assert trainer.callback_metrics["train_loss"] == pytest.approx(whole.trainer.callback_metrics["train_loss"].item())


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_failed_forward_anywhere_in_a_window_is_made_good(fit: Fit, accumulate: int) -> None:
    settings = {"max_steps": 4, "accumulate_grad_batches": accumulate}
    _, whole = fit(lambda: Project(ROWS, Memory()), [LengthBucketing()], **settings)
    memory = Later(after=2 + accumulate // 2, forward=90)
    _, parts = fit(lambda: Project(ROWS, memory), [LengthBucketing()], **settings)

    assert memory.failures
    assert_same_gradients(parts, whole)
    assert parts.num_rows.compute() == whole.num_rows.compute()


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_failed_backward_of_a_window_s_first_micro_batch_is_made_good(fit: Fit, accumulate: int) -> None:
    settings = {"max_steps": 3, "accumulate_grad_batches": accumulate}
    _, whole = fit(lambda: Project(ROWS, Memory()), [LengthBucketing()], **settings)
    memory = Later(after=1 + accumulate, backward=90)  # the dry run, and one window
    batches = [whole.seen[accumulate], whole.seen[accumulate + 1]]
    tokens = [len(rows) * max(ROWS[row] for row in rows) for rows in batches]
    if tokens[0] <= 90:
        pytest.skip("the batch is too small to fail")
    _, parts = fit(lambda: Project(ROWS, memory), [LengthBucketing()], **settings)

    assert memory.failures == [("backward", tokens[0])]
    assert_same_gradients(parts, whole)
    assert parts.num_rows.compute() == whole.num_rows.compute()


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_with_dropout_parts_draw_the_same_noise_in_both_directions(fit: Fit, place: str) -> None:
    """The reference computes the same parts with plain autograd, from the random state at the start of the step."""
    memory = Later(after=1, **{place: 90})
    callback = LengthBucketing()
    reference: list[Tensor] = []

    class Referenced(Project):
        def on_train_batch_start(self, batch: dict[str, Tensor], batch_idx: int) -> None:
            super().on_train_batch_start(batch, batch_idx)
            state, num_forwards = torch.get_rng_state(), self.num_forwards.clone()
            room, self.memory = self.memory, Memory()
            tokens = batch["input_ids"].numel()
            num_rows, length = batch["input_ids"].shape
            limit = callback.limit.max_tokens or (tokens // 2 if tokens > 90 else tokens)
            num_parts = 1 if tokens <= limit else -(-num_rows // max(limit // length, 1))
            weights = (batch["labels"][:, 1:] != -100).sum(-1)
            loss = torch.zeros(())
            for rows in torch.arange(num_rows).tensor_split(num_parts):
                part = {name: value[rows] for name, value in batch.items()}
                loss = loss + self.loss(part) * weights[rows].sum() / weights.sum()
            grads = torch.autograd.grad(loss, list(self.parameters()))
            reference.append(torch.cat([g.flatten() for g in grads]))
            self.memory = room
            self.num_forwards.copy_(num_forwards)
            torch.set_rng_state(state)

    _, module = fit(lambda: Referenced(ROWS, memory, dropout=0.5), [callback], max_steps=8)

    assert memory.failures
    for mine, theirs in zip(gradients(module), reference, strict=True):
        assert (mine - theirs).abs().max() <= 1e-6


def test_no_activations_of_other_parts_or_of_what_failed_are_held(fit: Fit) -> None:
    alive: list[int] = []

    class Watched(Project):
        def loss(self, batch: dict[str, Tensor]) -> Tensor:
            alive.append(sum(held() is not None for held in self.memory.activations))
            return super().loss(batch)

    memory = Later(after=1, backward=90)
    fit(lambda: Watched(ROWS, memory), [LengthBucketing()], max_steps=6)

    assert memory.failures
    assert set(alive) == {0}


def test_a_failed_backward_in_mid_window_saves_and_the_resumed_run_loses_nothing(fit: Fit, tmp_path: Path) -> None:
    settings = {"max_steps": 5, "accumulate_grad_batches": 3}
    _, whole = fit(lambda: Project(ROWS, Memory()), [LengthBucketing()], **settings)
    tokens = [len(rows) * max(ROWS[row] for row in rows) for rows in whole.seen]
    number = next(n for n, held in enumerate(tokens) if n > 3 and n % 3 and held > 90)
    memory = Later(after=1 + number, backward=90)
    with pytest.raises(UserError, match=rf"micro-batch {number % 3 + 1} of 3.*LengthBucketing\(max_tokens=") as error:
        fit(lambda: Project(ROWS, memory), [LengthBucketing()], **settings)
    assert "\n" not in str(error.value)

    (saved,) = tmp_path.glob("out-of-memory-*.ckpt")
    again = Memory(backward=90)
    _, resumed = fit(lambda: Project(ROWS, again), [LengthBucketing()], ckpt_path=saved, **settings)
    first = number - number % 3
    assert resumed.seen == whole.seen[first:]
    assert len(resumed.gradients) == 5 - first // 3
    for mine, theirs in zip(gradients(resumed), gradients(whole)[first // 3 :], strict=True):
        assert (mine - theirs).abs().max() <= 1e-6
    assert again.failures == []  # the limit was saved too


def test_the_learned_limit_is_in_the_checkpoint(fit: Fit, tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=2)
    callback = LengthBucketing()
    fit(lambda: Project(ROWS, Memory(forward=90)), [callback, checkpoint], max_steps=2)
    assert callback.limit.max_tokens is not None

    memory = Memory(forward=90)
    resumed = LengthBucketing()
    fit(lambda: Project(ROWS, memory), [resumed], max_steps=4, ckpt_path=tmp_path / "step=2.ckpt")
    assert memory.failures == []
    assert resumed.limit.max_tokens == callback.limit.max_tokens


def test_the_dry_run_says_what_to_set_where_nothing_can_be_cut(fit: Fit) -> None:
    class NoLabels(Project):
        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
            batch["labels"] = batch.pop("wanted")
            return self.loss(batch)

        def train_dataloader(self):
            loader = super().train_dataloader()
            plain = loader.collate_fn

            def renamed(rows):
                batch = plain(rows)
                batch["wanted"] = batch.pop("labels")
                return batch

            loader.collate_fn = renamed
            return loader

    with pytest.raises(UserError, match=r"dry run before the first update; without labels.*weight_fn.*max_tokens="):
        fit(lambda: NoLabels(ROWS, Memory(forward=90)), [LengthBucketing()])


def test_a_row_that_does_not_fit_alone_stops_with_one_line(fit: Fit) -> None:
    with pytest.raises(UserError, match=r"a single row does not fit; cut rows below 40 tokens") as error:
        fit(lambda: Project([5] * 8 + [40], Memory(forward=30)), [LengthBucketing()])
    assert "\n" not in str(error.value)


def test_a_loss_that_is_no_mean_over_labels_is_not_cut(fit: Fit) -> None:
    class PerRow(Project):
        def loss(self, batch: dict[str, Tensor]) -> Tensor:
            rows = [{name: value[n : n + 1] for name, value in batch.items()} for n in range(len(batch["row"]))]
            losses = [super(PerRow, self).loss(row) for row in rows]
            self.memory.take(batch["input_ids"].numel(), "forward")
            return torch.stack(losses).mean()

    with pytest.raises(UserError, match="not the weighted mean"):
        fit(lambda: PerRow(ROWS, Memory(forward=90)), [LengthBucketing()])

    def by_rows(batch: dict[str, Tensor]) -> float:
        return len(batch["row"])

    settings = {"max_steps": 4}
    memory = Memory(forward=90)
    _, whole = fit(lambda: PerRow(ROWS, Memory()), [LengthBucketing(weight_fn=by_rows)], **settings)
    _, parts = fit(lambda: PerRow(ROWS, memory), [LengthBucketing(weight_fn=by_rows)], **settings)
    assert memory.failures
    assert_same_gradients(parts, whole)


def test_nested_batches_stop_with_advice_and_attribute_access_is_kept(fit: Fit) -> None:
    class Nested(Project):
        def training_step(self, batch: dict[str, dict[str, Tensor]], batch_idx: int) -> Tensor:
            return self.loss(batch["text"])

        def on_train_batch_start(self, batch: dict[str, dict[str, Tensor]], batch_idx: int) -> None:
            pass

        def train_dataloader(self) -> DataLoader:
            return DataLoader(self.texts, batch_size=4, collate_fn=lambda rows: {"text": collate(rows)})

    with pytest.raises(UserError, match=r"forward of a batch, in a dry run.*no dict of tensors.*max_tokens=a smaller"):
        fit(lambda: Nested(ROWS, Memory(forward=90)), [LengthBucketing()])

    class Encoding(UserDict):
        def __getattr__(self, name: str) -> Tensor:
            return self.__dict__["data"][name]

    class Attributes(Project):
        def training_step(self, batch: Encoding, batch_idx: int) -> Tensor:
            return self.loss({"input_ids": batch.input_ids, "labels": batch.labels, "row": batch.row})

        def train_dataloader(self) -> DataLoader:
            return DataLoader(self.texts, batch_size=4, collate_fn=lambda rows: Encoding(collate(rows)))

    _, whole = fit(lambda: Attributes(ROWS, Memory()), [LengthBucketing()])
    memory = Memory(forward=90)
    _, parts = fit(lambda: Attributes(ROWS, memory), [LengthBucketing()])
    assert memory.failures
    assert_same_gradients(parts, whole)


def test_other_errors_pass(fit: Fit) -> None:
    class Broken(Project):
        def loss(self, batch: dict[str, Tensor]) -> Tensor:
            raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        fit(lambda: Broken(ROWS, Memory()), [LengthBucketing()])
