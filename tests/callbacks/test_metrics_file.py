from pathlib import Path

from lit_rlhf_callbacks.metrics_file import MetricsFile


def test_columns_follow_the_table_and_are_known_from_the_first_rows(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.declare({"zebra", "loss", "reward"})
    file.put({"global_step": 0, "hours": 0.0, "eval/pass_at_1": 0.5})
    file.put({"global_step": 1, "hours": 0.1, "reward": 0.25, "zebra": 3.0, "loss": 1e-08})

    assert file.path.read_text() == (
        "global_step,hours,loss,reward,eval/pass_at_1,zebra\n0,0.0,,,0.5,\n1,0.1,1e-08,0.25,,3.0\n"
    )


def test_a_new_column_rewrites_the_file(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.put({"global_step": 1, "hours": 0.0, "loss": 1.0})
    file.put({"global_step": 2, "hours": 0.0, "entropy": 2.0})
    file.put({"global_step": 3, "hours": 0.0, "a,b": 4.0})

    assert file.path.read_text() == ('global_step,hours,loss,entropy,"a,b"\n1,0.0,1.0,,\n2,0.0,,2.0,\n3,0.0,,,4.0\n')
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_the_same_update_again_replaces_its_row(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.put({"global_step": 1, "hours": 0.0, "loss": 1.0})
    file.put({"global_step": 1, "hours": 0.0, "loss": 1.0, "eval/n": 256.0})

    assert file.path.read_text() == "global_step,hours,loss,eval/n\n1,0.0,1.0,256.0\n"


def test_going_on_moves_later_rows_aside_and_keeps_the_row_resumed_from(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "metrics.csv")
    for step in (1, 2, 3):
        first.put({"global_step": step, "hours": 0.5, "loss": float(step)})

    second = MetricsFile(tmp_path / "metrics.csv")
    row = second.go_on_from(2)
    assert row == {"global_step": 2, "hours": 0.5, "loss": 2.0}
    second.put(row | {"eval/n": 8.0})
    second.put({"global_step": 3, "hours": 0.7, "loss": 9.0})

    assert second.path.read_text() == "global_step,hours,loss,eval/n\n1,0.5,1.0,\n2,0.5,2.0,8.0\n3,0.7,9.0,\n"
    assert (tmp_path / "metrics.csv.discarded").read_text() == "global_step,hours,loss\n3,0.5,3.0\n"


def test_going_on_before_the_first_row_leaves_an_empty_table(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "metrics.csv")
    first.put({"global_step": 1, "hours": 0.5, "loss": 1.0})

    second = MetricsFile(tmp_path / "metrics.csv")
    assert second.go_on_from(0) == {}
    second.put({"global_step": 1, "hours": 0.5, "loss": 2.0})

    assert second.path.read_text() == "global_step,hours,loss\n1,0.5,2.0\n"
