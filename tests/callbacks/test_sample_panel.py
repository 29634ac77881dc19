import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import Logger

from lit_rlhf_callbacks import SamplePanel
from lit_rlhf_callbacks.prompt_pool import choose
from lit_rlhf_callbacks.run_dir import assign_run_dir

Fit = Callable[..., tuple[Trainer, LightningModule]]


def samples(root: Path) -> list[dict[str, Any]]:
    (path,) = root.glob("runs/*/samples.jsonl")
    with path.open(encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def test_a_foreign_hugging_face_project(fit: Fit, foreign_lm: type, tmp_path: Path) -> None:
    fit(foreign_lm, [SamplePanel(prompts=["abc", "hello"], every_n_updates=2, max_new_tokens=5)])

    lines = samples(tmp_path)
    assert [(line["step"], line["event"], line["prompt_id"]) for line in lines] == [
        (0, 0, 0), (0, 0, 1), (2, 1, 0), (2, 1, 1), (4, 2, 0), (4, 2, 1),
    ]  # fmt: skip
    for line in lines:
        assert line["prompt"] == ("abc", "hello")[line["prompt_id"]]
        assert line["num_tokens"] == len(line["completion"]) <= 5
        assert line["finish"] == ("stop" if line["completion"].endswith(".") else "length")
        assert line["rewards"] == {}
        assert line["sampling"] == {"max_new_tokens": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    assert len({line["model_hash"] for line in lines}) == 3


def test_panels_differ_by_what_was_learned_only(fit: Fit, foreign_lm: type, tmp_path: Path) -> None:
    class Frozen(foreign_lm):  # type: ignore[misc, valid-type]
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    fit(Frozen, [SamplePanel(prompts=["abc", "abd"], every_n_updates=2, max_new_tokens=20)])

    lines = samples(tmp_path)
    for prompt_id in (0, 1):
        assert len({line["completion"] for line in lines if line["prompt_id"] == prompt_id}) == 1
    assert lines[0]["completion"] != lines[1]["completion"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_training_does_not_notice(fit: Fit, foreign_lm: type, temperature: float) -> None:
    modes = []

    class Look(Callback):
        def on_train_batch_end(self, trainer, pl_module, *_):
            modes.append((torch.is_grad_enabled(), [module.training for module in pl_module.modules()]))

    panel = SamplePanel(prompts=["abc"], every_n_updates=1, max_new_tokens=4, temperature=temperature)
    _, watched = fit(foreign_lm, [panel, Look()])
    with_panel = torch.get_rng_state()
    _, alone = fit(foreign_lm, [Look()])

    assert torch.equal(with_panel, torch.get_rng_state())
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)
    assert modes[:4] == modes[4:]


def test_the_protocol_comes_first(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    _, module = fit(foreign_policy, [SamplePanel(every_n_updates=4, num_prompts=2)])

    lines = samples(tmp_path)
    assert [(line["step"], line["prompt_id"]) for line in lines] == [(0, 10), (0, 11), (4, 10), (4, 11)]
    assert lines[0]["rewards"] == {"length": 0.5}
    assert module.events == [0, 1]


def test_a_generate_with_other_parameters_is_not_ours(fit: Fit, foreign_lm: type, tmp_path: Path) -> None:
    class Other(foreign_lm):  # type: ignore[misc, valid-type]
        def generate(self, input_ids):
            raise AssertionError

    fit(Other, [SamplePanel(prompts=["abc"], max_new_tokens=2)], max_steps=1)

    assert len(samples(tmp_path)) == 1


def test_a_function_of_ones_own(fit: Fit, tmp_path: Path) -> None:
    def generate(pl_module, prompts, sampling, event):
        text = {"completion": type(pl_module).__name__, "num_tokens": 1, "finish": "stop"}
        return [{**prompt, **text} for prompt in prompts]

    fit(BoringModel, [SamplePanel(prompts=["a"], generate=generate)], max_steps=1)

    assert samples(tmp_path)[0]["completion"] == "BoringModel"


def test_a_module_with_nothing_to_offer_is_told_once(fit: Fit, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="could not be checked: the module has no generate") as warned:
        fit(BoringModel, [SamplePanel(prompts=["a"], every_n_updates=1)], max_steps=3)

    assert sum("SamplePanel" in str(warning.message) for warning in warned) == 1
    assert not list(tmp_path.glob("runs/*/samples.jsonl"))


def test_text_cannot_command_the_terminal(fit: Fit, foreign_policy: type, capsys: pytest.CaptureFixture[str]) -> None:
    fit(foreign_policy, [SamplePanel()], max_steps=1)

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[31m[b]x[/b]⏎" in shown


def test_a_resume_moves_later_samples_aside(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    def callbacks() -> list[Callback]:
        return [
            SamplePanel(num_prompts=1, every_n_updates=1),
            ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1),
        ]

    fit(foreign_policy, callbacks(), max_steps=3)
    (checkpoint,) = tmp_path.glob("*step=2.ckpt")
    (folder,) = tmp_path.glob("runs/*")
    fit(
        foreign_policy,
        callbacks(),
        ckpt_path=checkpoint,
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
    )

    assert [(line["step"], line["event"]) for line in samples(tmp_path)] == [(n, n) for n in range(5)]
    assert json.loads((folder / "samples.jsonl.discarded").read_text())["step"] == 3


def test_accumulation_shows_one_panel_per_update(fit: Fit, foreign_policy: type, tmp_path: Path) -> None:
    fit(foreign_policy, [SamplePanel(num_prompts=1, every_n_updates=1)], accumulate_grad_batches=3)

    assert [line["step"] for line in samples(tmp_path)] == [0, 1, 2, 3, 4]


def test_a_logger_with_tables_gets_one_per_panel(fit: Fit, foreign_policy: type) -> None:
    class Tables(Logger):
        name, version = "tables", 0
        tables: list[tuple[int, list[str], list[list[Any]]]]

        def log_table(self, key, columns, data, step):
            self.tables = [*getattr(self, "tables", []), (step, columns, data)]

        def log_metrics(self, metrics, step=None):
            pass

        def log_hyperparams(self, params):
            pass

    logger = Tables()
    fit(foreign_policy, [SamplePanel(num_prompts=2, every_n_updates=4)], logger=logger)

    assert [step for step, _, _ in logger.tables] == [0, 4]
    _, columns, data = logger.tables[1]
    assert columns == ["step", "event", "prompt_id", "prompt", "completion", "num_tokens", "finish", "length"]
    assert [row[2] for row in data] == [10, 11]
    assert data[0][-1] == 0.5


def test_strategies() -> None:
    pool = list(range(7))

    assert [choose(pool, 3, "fixed", event) for event in (0, 5)] == [[0, 1, 2]] * 2
    assert [choose(pool, 3, "round_robin", event) for event in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    draws = [choose(pool, 3, "random", event) for event in range(20)]
    assert draws == [choose(pool, 3, "random", event) for event in range(20)]
    assert all(len(set(draw)) == 3 for draw in draws)
    assert {prompt for draw in draws for prompt in draw} == set(pool)
    assert choose(pool, 99, "round_robin", 1) == pool
