"""Small logs in the forms that TRL, verl and OpenRLHF, W&B and TensorBoard give them, written by hand."""

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from lit_rlhf_callbacks import UserError
from lit_rlhf_callbacks.foreign_logs import read_log, without_placeholders
from lit_rlhf_callbacks.foreign_names import canonical


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    if isinstance(content, str):
        path.write_text(content)
    elif name.endswith(".jsonl"):
        path.write_text("\n".join(json.dumps(row) for row in content) + "\n")  # type: ignore[attr-defined]
    else:
        path.write_text(json.dumps(content))
    return path


def test_a_trainer_state_of_trl_with_its_evaluations_in_the_same_rows(tmp_path: Path) -> None:
    history = [
        {"step": 10, "epoch": 0.1, "reward": 0.5, "completion_length": 20.0, "rewards/format": 0.2, "kl": 0.0},
        {"step": 20, "epoch": 0.2, "reward": 0.6, "completion_length": 21.0, "rewards/format": 0.3, "kl": 0.0},
        {"step": 20, "epoch": 0.2, "eval_reward": 0.4, "eval_runtime": 3.0},
        {"step": 20, "train_runtime": 9.0, "total_flos": 1},
    ]
    state = {"global_step": 20, "max_steps": 500, "log_history": history}
    log = read_log(written(tmp_path, "trainer_state.json", state))

    first = {"reward": 0.5, "completions/mean_length": 20.0, "rewards/format/mean": 0.2}  # kl: beta is 0
    assert log.rows[0] == (10, first)
    assert log.rows[1][0] == 20
    assert log.rows[1][1]["eval/reward"] == 0.4
    assert log.rows[1][1]["reward"] == 0.6
    assert log.facts == {"trainer.max_steps": 500}


def test_preference_names_are_not_taken_for_reward_functions() -> None:
    names = ["rewards/chosen", "rewards/margins", "eval_rewards/accuracies", "rewards/correct", "rewards/correct/mean"]
    assert [canonical(name) for name in names] == [
        "rewards/chosen",
        "rewards/margins",
        "eval/rewards/accuracies",
        "rewards/correct/mean",
        "rewards/correct/mean",
    ]


def test_the_file_logger_of_verl_is_nested(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "data": {
                "training/global_step": step,
                "actor/entropy": 0.5,
                "actor/pg_clipfrac": 0.01 * step,
                "actor/kl_loss": 0.001 * step,
                "actor/grad_norm": 1.0,
                "actor/lr": 1e-6,
                "critic/score/mean": 0.3,
                "response_length/mean": 100.0,
                "response_length/clip_ratio": 0.05,
                "timing_s/step": 12.0,
            },
        }
        for step in (1, 2)
    ]
    rows[1]["data"]["val-core/openai/gsm8k/acc/mean@1"] = 0.7
    log = read_log(written(tmp_path, "log.jsonl", rows))

    assert log.rows[1] == (
        2,
        {
            "entropy": 0.5,
            "clip_ratio/region_mean": 0.02,
            "kl": 0.002,
            "grad_norm": 1.0,
            "learning_rate": 1e-6,
            "reward": 0.3,
            "completions/mean_length": 100.0,
            "completions/clipped_ratio": 0.05,
            "step_time": 12.0,
            "eval/pass_at_1": 0.7,
        },
    )


def test_the_share_of_right_held_out_answers_has_many_names(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.3, "eval/accuracy": 20.0 * step} for step in (1, 2)]
    assert read_log(written(tmp_path, "log.jsonl", rows)).rows[1] == (2, {"reward": 0.3, "eval/pass_at_1": 0.4})
    rows = [{"step": step, "eval_loss": 0.3, "eval_accuracy": 0.5} for step in (1, 2)]  # of a reward model
    assert "eval/accuracy" in read_log(written(tmp_path, "pairs.jsonl", rows)).rows[0][1]


def test_openrlhf_through_an_export_of_wandb(tmp_path: Path) -> None:
    text = (
        '"Step","ppo-1 - train/actor_lr","ppo-1 - train/kl","ppo-1 - train/kl__MIN","ppo-1 - train/response_length"\n'
        '"1","1e-06","0.01","0.01","30"\n"2","1e-06","0.02","0.02","31"\n'
    )
    assert read_log(written(tmp_path, "wandb.csv", text)).rows == [
        (1, {"learning_rate": 1e-6, "kl": 0.01, "completions/mean_length": 30.0}),
        (2, {"learning_rate": 1e-6, "kl": 0.02, "completions/mean_length": 31.0}),
    ]
    history = [
        {"_step": 1, "_runtime": 5.0, "train/loss": "NaN", "note": "text", "train/reward": None},
        {"_step": 2, "train/chosen_reward": 0.1, "train/acc": 0.5},
    ]
    log = read_log(written(tmp_path, "history.jsonl", history))
    assert math.isnan(log.rows[0][1]["loss"])
    assert log.rows[0][1].keys() == {"loss"}
    assert log.rows[1] == (2, {"rewards/chosen": 0.1, "rewards/accuracies": 0.5})


def test_nan_in_a_table_means_missing_unless_a_full_column_ends_in_it(tmp_path: Path) -> None:
    lines = ["step,reward,eval_reward,loss,grad_norm"]
    for step in range(1, 13):
        evaluated = "0.5" if step % 4 == 0 else "nan"
        lines.append(f"{step},{step},{evaluated},{'nan' if step > 8 else 0.1},{'' if step % 2 else 1.0}")
    log = read_log(written(tmp_path, "log.csv", "\n".join(lines)))

    assert [step for step, row in log.rows if "eval/reward" in row] == [4, 8, 12]
    assert [step for step, row in log.rows if math.isnan(row["loss"])] == [9, 10, 11, 12]
    assert [step for step, row in log.rows if "grad_norm" in row] == [2, 4, 6, 8, 10, 12]


def test_zeros_that_nobody_measured_are_left_out_and_others_kept() -> None:
    rows = [(step, {"clip_ratio/region_mean": 0.0, "kl": 0.001 * step, "grad_norm": 0.0}) for step in range(3)]
    assert without_placeholders(rows)[2] == (2, {"kl": 0.002, "grad_norm": 0.0})


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_event_files(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in (1, 2):
            writer.add_scalar("train/reward", 0.1 * step, step)
            writer.add_scalar("train/kl", 0.01 * step, step)
    (file,) = tmp_path.glob("*tfevents*")
    assert [(step, sorted(row)) for step, row in read_log(file).rows] == [(1, ["kl", "reward"]), (2, ["kl", "reward"])]


@pytest.mark.skipif(find_spec("tensorboard") is not None, reason="tensorboard is installed")
def test_without_tensorboard_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pip install tensorboard"):
        read_log(written(tmp_path, "events.out.tfevents.1.x", "x"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "reward\n1\n", "no row has a step"),
        ("a.jsonl", '{"step": 1}\nbroken\n', "line 2: no JSON"),
        ("a.json", "{}", "neither a list of rows nor a trainer_state"),
        ("a.json", "{", "no JSON"),
        ("a.parquet", "", "no log it knows"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_log(written(tmp_path, name, content))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_log(tmp_path / "none.csv")
