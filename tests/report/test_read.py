"""Run directories as a crash, another program or a long run leaves them."""

import math

import pytest

from lit_rlhf.report.numbers import Point, thin, write
from lit_rlhf.report.page import page as write_page
from lit_rlhf.report.read import read_runs
from lit_rlhf_callbacks.errors import UserError


def test_half_written_lines_are_left_out_and_said(grpo):
    folder = grpo(num=3)
    with (folder / "metrics.csv").open("a") as file:
        file.write("4,0.04,0.2")
    with (folder / "samples.jsonl").open("a") as file:
        file.write('{"step": 60, "promp')
    (folder / "run.json").write_text('{"name": "gr')
    (run,) = read_runs([folder])
    assert [step for step, _ in run.columns["reward"]] == [0, 1, 2, 3]
    assert len(run.lines["samples"]) == 3
    told = "; ".join(run.notes)
    assert "last line of metrics.csv" in told
    assert "1 line of samples.jsonl" in told
    assert "run.json is cut off" in told
    assert "last line of metrics.csv" in write_page([run])


@pytest.mark.parametrize("file", ["metrics.csv", "run.json", "samples.jsonl", "sentinels.jsonl", "findings.jsonl"])
def test_any_file_alone_makes_a_page(grpo, page, file):
    folder = grpo()
    for path in folder.iterdir():
        if path.name != file:
            path.unlink()
    assert "curves" in page(write_page(read_runs([folder]))).ids


def test_what_is_not_finite_is_a_gap_with_a_mark(make_run, page):
    values = [1.0, float("nan"), 2.0, float("inf"), float("nan"), 1e308, -1e308]
    rows = [{"global_step": step, "loss": value} for step, value in enumerate(values)]
    html = write_page(read_runs([make_run("broken", rows)]))
    assert html.count('<text class="gap"') == 2
    assert "nan," not in html
    assert page(html).column("loss") == ["1", "NaN", "2", "∞", "NaN", "1e308", "−1e308"]


def test_one_row_and_one_value_are_drawn(make_run, page):
    html = write_page(read_runs([make_run("one", [{"global_step": 5, "hours": 0.0, "loss": 0.0, "kl": "nan"}])]))
    assert page(html).column("loss") == ["0"]
    said = html.lower().replace(">nan<", "").replace("nan from 5 on", "").replace("nan from 0 on", "")  # updates, hours
    assert "nan" not in said


def test_a_long_run_is_thinned_and_keeps_its_spike(make_run):
    rows = [
        {"global_step": step, "hours": step, "reward": 50.0 if step == 7777 else step % 3} for step in range(10_000)
    ]
    html = write_page(read_runs([make_run("long", rows)]))
    assert html.count(",") < 5000
    assert len(html) < 120_000
    kept = thin([Point(step, 50.0 if step == 7777 else step % 3) for step in range(10_000)], 600)
    assert len(kept) <= 600
    assert max(kept, key=lambda point: point.y) == Point(7777, 50.0)


def test_hours_between_rows_are_interpolated(make_run):
    rows = [{"global_step": step, "hours": hours} for step, hours in ((0, 0.0), (10, 1.0), (20, 3.0))]
    (run,) = read_runs([make_run("hours", rows)])
    assert [run.hours_at(step) for step in (0, 5, 15, 20, 99)] == [0.0, 0.5, 2.0, 3.0, 3.0]


def test_rows_that_go_back_are_left_out(make_run):
    (run,) = read_runs([make_run("back", [{"global_step": step, "loss": 1.0} for step in (0, 1, 1, "x", 2)])])
    assert [step for step, _ in run.columns["loss"]] == [0, 1, 2]
    assert run.notes == ["2 lines of metrics.csv are no rows of numbers in ascending order and are left out"]


def test_what_is_no_run_directory_is_one_line(tmp_path, grpo):
    with pytest.raises(UserError, match="does not exist; give a folder that fit has written"):
        read_runs([tmp_path / "missing"])
    grpo("runs/a")
    with pytest.raises(UserError, match=r"holds runs; give them: .*runs/a"):
        read_runs([tmp_path / "runs"])


@pytest.mark.parametrize(("value", "text"), [(-0.5, "−0.5"), (math.inf, "∞"), (1e308, "1e308"), (123456, "123,456")])
def test_numbers(value, text):
    assert write(value) == text
