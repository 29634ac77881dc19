import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from lit_rlhf_callbacks import PolicyMonitor

Fit = Callable[..., tuple[Trainer, LightningModule]]


class Recorder(Callback):
    """What later callbacks see, one entry per update."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, *_):
        if trainer.global_step > len(self.rows):
            self.rows.append(dict(outputs["metrics"]))


def test_what_is_measured_of_a_module_with_the_protocol(fit: Fit, foreign_policy: type) -> None:
    recorder = Recorder()
    fit(lambda: foreign_policy(with_reference=True), [PolicyMonitor(), recorder], accumulate_grad_batches=3)

    first, last = recorder.rows[0], recorder.rows[-1]
    assert first["kl"] == 0.0  # the start is the reference
    assert first["ratio/mean"] == first["ratio/max"] == 1.0
    assert last["kl"] == last["kl/k3"] > 0
    assert last["policy/approxkl_avg"] > 0
    assert last["completions/mean_length"] == 4.0
    assert last["advantages/frac_nonzero"] == 0.5
    assert last["learning_rate"] == 0.5
    assert last["grad_norm"] > 0
    assert last["tokens_per_second"] > 0
    assert 0 < last["hours"] == last["device_hours"]
    assert not any(name.startswith(("drift", "sampling")) for name in last)


def test_drift_stands_in_for_the_missing_reference(fit: Fit, foreign_policy: type) -> None:
    recorder = Recorder()
    _, module = fit(foreign_policy, [monitor := PolicyMonitor(every_n_updates=2), recorder], max_steps=4)

    assert [n for n, row in enumerate(recorder.rows, 1) if "drift/forward_kl" in row] == [1, 2, 4]
    assert not any(name.startswith("kl") for row in recorder.rows for name in row)
    assert monitor.probe is not None
    ids, mask = monitor.probe["input_ids"], monitor.probe["completion_mask"]
    distance = (module.score({"input_ids": ids}) + torch.tensor(5.0).log())[mask]  # the start was uniform
    expected = (distance.exp() - 1 - distance).mean().item()
    assert recorder.rows[-1]["drift/forward_kl"] == pytest.approx(expected, rel=1e-5)


def test_a_resume_keeps_measuring_from_the_same_start(fit: Fit, foreign_policy: type, tmp_path: Any) -> None:
    def callbacks() -> list[Callback]:
        return [PolicyMonitor(every_n_updates=2), ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)]

    first, second = Recorder(), Recorder()
    fit(foreign_policy, [*callbacks(), first], max_steps=4)
    (checkpoint,) = tmp_path.glob("*step=2.ckpt")
    second.rows = [{}, {}]
    fit(foreign_policy, [*callbacks(), second], max_steps=4, ckpt_path=checkpoint)

    assert second.rows[3]["drift/forward_kl"] > 0
    state = torch.load(checkpoint, weights_only=True)["callbacks"]["PolicyMonitor"]
    assert torch.allclose(state["probe"]["start_logps"][:, 1:], torch.tensor(0.2).log())


@pytest.mark.parametrize("lr", [0.0, 0.1])
def test_a_foreign_hugging_face_project(fit: Fit, foreign_lm: type, lr: float) -> None:
    class WithRate(foreign_lm):  # type: ignore[misc, valid-type]
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=lr)

    recorder = Recorder()
    fit(WithRate, [PolicyMonitor(every_n_updates=2), recorder])

    drifts = [row["drift/forward_kl"] for row in recorder.rows if "drift/forward_kl" in row]
    assert len(drifts) == 3
    assert all(drift > 0 if lr else drift == 0 for drift in drifts)
    assert all("grad_norm" in row and "learning_rate" in row for row in recorder.rows)


@pytest.mark.parametrize("kind", ["lm", "policy"])
def test_training_does_not_notice(fit: Fit, foreign_lm: type, foreign_policy: type, kind: str) -> None:
    make = foreign_lm if kind == "lm" else foreign_policy
    _, watched = fit(make, [PolicyMonitor(every_n_updates=1)])
    with_monitor = torch.get_rng_state()
    _, alone = fit(make, [])

    assert torch.equal(with_monitor, torch.get_rng_state())
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_gradient_norm_is_the_one_before_clipping(fit: Fit) -> None:
    norms = []

    class Look(Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            grads = [p.grad.flatten() for p in pl_module.parameters()]
            norms.append(torch.cat(grads).norm().item())

    recorder = Recorder()
    fit(BoringModel, [Look(), PolicyMonitor(), recorder], gradient_clip_val=0.001)

    assert [row["grad_norm"] for row in recorder.rows] == pytest.approx(norms)
    assert min(norms) > 0.001


def test_update_share(fit: Fit) -> None:
    class HalfFrozen(BoringModel):
        """Only the bias gets a gradient worth a step of fp32 weights this large."""

        def __init__(self) -> None:
            super().__init__()
            self.layer.weight.data.fill_(1e12)

        def training_step(self, batch, batch_idx):
            return self.layer(torch.zeros_like(batch)).sum()

    recorder = Recorder()
    fit(HalfFrozen, [PolicyMonitor(every_n_updates=2), recorder])

    assert [row.get("update/share_changed") for row in recorder.rows] == [2 / 66, 2 / 66, None, 2 / 66]
    assert 0 < recorder.rows[0]["update/relative_norm"] < 1e-9


def test_what_the_module_measures_itself_is_left_alone(fit: Fit, foreign_policy: type) -> None:
    class Measures(foreign_policy):  # type: ignore[misc, valid-type]
        def training_step(self, batch, batch_idx):
            outputs = super().training_step(batch, batch_idx)
            outputs["metrics"]["completions/mean_length"] = -7.0
            self.log("grad_norm", -8.0)
            return outputs

    recorder = Recorder()
    trainer, _ = fit(Measures, [PolicyMonitor(), recorder])

    assert all(row["completions/mean_length"] == -7.0 and "grad_norm" not in row for row in recorder.rows)
    assert trainer.callback_metrics["grad_norm"] == -8.0


def test_what_could_not_be_checked_is_said_once(fit: Fit, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        fit(BoringModel, [PolicyMonitor()])

    (said,) = [message for message in caplog.messages if "PolicyMonitor" in message]
    assert "could not be checked: kl, ratio/mean" in said
    assert "training_step returns no tokens" in said
    assert "drift/forward_kl" in said


def test_what_a_module_says_it_does_not_have_is_not_missed(
    fit: Fit, foreign_policy: type, caplog: pytest.LogCaptureFixture
) -> None:
    class Supervised(foreign_policy):  # type: ignore[misc, valid-type]
        def run_facts(self):
            return {"stage": "sft", "reference": "none"}

    with caplog.at_level("INFO"):
        fit(Supervised, [PolicyMonitor()])

    assert [message for message in caplog.messages if "PolicyMonitor" in message] == []


class Evaluated(BoringModel):
    """Evaluates for a tenth of a second."""

    def validation_step(self, batch, batch_idx):
        time.sleep(0.05)

    def val_dataloader(self):
        return DataLoader(torch.randn(2, 32))


def test_an_evaluation_is_no_part_of_the_checkpoint_before_it(fit: Fit, tmp_path: Any) -> None:
    """Lightning saves at the end of a batch, and evaluates after it; a callback may serve two fits."""
    recorder = Recorder()
    monitor, saving = PolicyMonitor(), ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    fit(Evaluated, [monitor, recorder, saving], max_steps=4, val_check_interval=2)
    assert recorder.rows[2]["time/evaluation"] >= 0.1
    assert recorder.rows[2]["time/checkpoint"] < recorder.rows[2]["time/evaluation"]
    time.sleep(0.5)
    again = Recorder()
    fit(Evaluated, [monitor, again], max_steps=2)
    assert again.rows[0].get("time/checkpoint", 0.0) < 0.3


def test_a_row_says_where_its_time_went(fit: Fit, foreign_policy: type, tmp_path: Any) -> None:
    recorder = Recorder()
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    fit(foreign_policy, [PolicyMonitor(), recorder, saving], max_steps=4)
    assert all(row["time/update"] > 0 for row in recorder.rows)
    assert [n for n, row in enumerate(recorder.rows, 1) if row.get("time/checkpoint", 0.0) > 0] == [3]
    hours = [row["hours"] * 3600 for row in recorder.rows]
    assert sum(sum(v for k, v in row.items() if k.startswith("time/")) for row in recorder.rows) <= hours[-1] + 1.0
