import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

from lit_rlhf_callbacks import RunFiles, SentinelEval
from lit_rlhf_callbacks.errors import RunStoppedError
from lit_rlhf_callbacks.run_dir import assign_run_dir

Fit = Callable[..., tuple[Trainer, LightningModule]]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def knowing_lm(foreign_lm: type) -> type[LightningModule]:
    """A project whose model knows the alphabet: trained until the next letter is its first choice."""
    torch.manual_seed(0)
    model = foreign_lm().model.eval()
    ids = torch.full((26, 9), 28)  # a letter, a space, a letter, ...
    ids[:, ::2] = 2 + (torch.arange(26)[:, None] + torch.arange(5)) % 26
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.clone() for name, value in model.state_dict().items()}

    class KnowingLM(foreign_lm):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.model.load_state_dict(weights)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    return KnowingLM


@pytest.fixture
def alphabet(tmp_path: Path) -> str:
    """24 items: which letter comes after three others."""
    rows = [
        {"question": " ".join(LETTERS[i : i + 3]), "options": [LETTERS[i + 3], "q" if wrong else "z"], "answer": 0}
        for i in range(12)
        for wrong in (0, 1)
    ]
    path = tmp_path / "alphabet.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


class Scramble(Callback):
    """Ruin the weights just before an update."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self.step:
            noise = torch.Generator().manual_seed(0)
            for parameter in pl_module.parameters():
                parameter.data = torch.randn(parameter.shape, generator=noise)


def lines(tmp_path: Path, name: str = "sentinels.jsonl") -> list[dict[str, Any]]:
    (path,) = (tmp_path / "runs").glob(f"*/{name}")
    return [json.loads(line) for line in path.open()]


def test_a_foreign_project_is_measured(fit: Fit, knowing_lm: type, alphabet: str, tmp_path: Path) -> None:
    fit(knowing_lm, [SentinelEval(sets=[alphabet], every_n_updates=3), RunFiles(name="a")], max_steps=7)

    found = lines(tmp_path)
    assert [line["step"] for line in found] == [0, 3, 6, 7]
    assert all(line["n"] == 24 and len(line["correct"]) == 24 for line in found)
    assert all(line["accuracy"] == line["correct"].count("1") / 24 for line in found)
    assert found[0]["accuracy"] > 0.8
    assert found[0]["change"] == found[0]["sigma"] == 0
    header, *rows = (tmp_path / "runs" / "a" / "metrics.csv").read_text().splitlines()
    place = header.split(",").index("sentinel/alphabet/accuracy")
    assert [bool(row.split(",")[place]) for row in rows] == [n in (3, 6, 7) for n in range(1, 8)]


@pytest.mark.parametrize("settings", [{}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 2}])
def test_training_does_not_notice(fit: Fit, knowing_lm: type, alphabet: str, settings: dict[str, Any]) -> None:
    _, watched = fit(knowing_lm, [SentinelEval(sets=[alphabet], every_n_updates=1, stop_drop_sigma=99)], **settings)
    with_sentinel = torch.get_rng_state()
    _, alone = fit(knowing_lm, [], **settings)

    assert torch.equal(with_sentinel, torch.get_rng_state())
    assert all(map(torch.equal, watched.parameters(), alone.parameters()))
    assert watched.training == alone.training


def test_a_cliff_stops_the_run_and_names_the_last_good_checkpoint(
    fit: Fit, knowing_lm: type, alphabet: str, tmp_path: Path
) -> None:
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    sentinel = SentinelEval(sets=[alphabet], every_n_updates=2, stop_drop_sigma=2)

    with pytest.raises(RunStoppedError, match=r"broken, not its recipe weak: by update 6 alphabet went from") as error:
        fit(knowing_lm, [Scramble(4), RunFiles(name="a"), sentinel, checkpoint], max_steps=10)

    assert f"at update 4 nothing was lost yet; go back to {tmp_path / 'step=4.ckpt'} and lower" in str(error.value)
    last = lines(tmp_path)[-1]
    assert last["step"] == 6
    assert last["sigma"] < -2
    assert last["change"] <= -0.2
    header, *rows = (tmp_path / "runs" / "a" / "metrics.csv").read_text().splitlines()
    sigmas = [row.split(",")[header.split(",").index("sentinel/alphabet/sigma")] for row in rows]
    assert float(sigmas[5]) == last["sigma"]


def test_a_drop_is_warned_of_once(fit: Fit, knowing_lm: type, alphabet: str, recwarn: pytest.WarningsRecorder) -> None:
    fit(knowing_lm, [Scramble(2), SentinelEval([alphabet], 1, max_drop_sigma=2, stop_drop_sigma=99)], max_steps=6)

    said = [str(w.message) for w in recwarn if "SentinelEval" in str(w.message)]
    assert len(said) == 1
    assert "items lost" in said[0]
    assert "by update 3" in said[0]


def test_the_start_survives_a_resume(fit: Fit, knowing_lm: type, alphabet: str, tmp_path: Path) -> None:
    def callbacks() -> list[Callback]:
        saved = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
        return [Scramble(2), SentinelEval(sets=[alphabet], every_n_updates=1, stop_drop_sigma=99), saved]

    fit(knowing_lm, callbacks(), max_steps=4)
    whole = lines(tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    fit(
        knowing_lm,
        callbacks(),
        ckpt_path=tmp_path / "step=2.ckpt",
        before_fit=lambda trainer: assign_run_dir(trainer, resume_from=folder),
        max_steps=4,
    )

    resumed = lines(tmp_path)
    assert [line["step"] for line in resumed] == [line["step"] for line in whole] == [0, 1, 2, 3, 4]
    start = whole[0]["accuracy"]
    assert [line["change"] for line in resumed] == pytest.approx([line["accuracy"] - start for line in resumed])
    assert resumed[-1]["change"] < -0.2  # the scrambled model is compared with the start, not with itself
    assert [line["step"] for line in lines(tmp_path, "sentinels.jsonl.discarded")] == [3, 4]
    assert torch.load(tmp_path / "step=2.ckpt", weights_only=True)["callbacks"]["SentinelEval"]["start"]


def test_measuring_what_is_saved(fit: Fit, knowing_lm: type, alphabet: str, tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    sentinel = SentinelEval(sets=[alphabet], every_n_updates=None, stop_drop_sigma=2)
    with pytest.raises(RunStoppedError, match=r"nothing was lost yet; go back to .*step=2\.ckpt"):
        fit(knowing_lm, [Scramble(3), sentinel, checkpoint], max_steps=5)

    assert [line["step"] for line in lines(tmp_path)] == [0, 2, 4]
    assert {path.name for path in tmp_path.glob("*.ckpt")} == {"step=2.ckpt"}


@pytest.mark.parametrize(
    ("kind", "missing"), [("boring", "no tokenizer"), ("policy", "no tokenizer"), ("lm", "no sets are given")]
)
def test_who_cannot_be_measured_says_so_in_a_line_and_trains(
    fit: Fit,
    foreign_policy: type,
    foreign_lm: type,
    alphabet: str,
    recwarn: pytest.WarningsRecorder,
    kind: str,
    missing: str,
) -> None:
    make = {"boring": BoringModel, "policy": foreign_policy, "lm": foreign_lm}[kind]
    trainer, _ = fit(make, [SentinelEval(sets=None if kind == "lm" else [alphabet], every_n_updates=1)])

    assert trainer.global_step == 4
    (said,) = [str(w.message) for w in recwarn if "SentinelEval" in str(w.message)]
    assert f"could not be checked: {missing}" in said.replace("the module has ", "")


def test_a_set_at_the_level_of_guessing_is_said(
    fit: Fit, foreign_lm: type, alphabet: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        fit(foreign_lm, [SentinelEval(sets=[alphabet])], max_steps=1)

    (said,) = [message for message in caplog.messages if "SentinelEval" in message]
    assert "no better than guessing (0.50), so a loss could not show" in said
