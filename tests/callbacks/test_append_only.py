import json
from pathlib import Path

from lit_rlhf_callbacks.append_only import JsonLines, append_line


def records(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def test_records_survive_any_text(tmp_path: Path) -> None:
    file = JsonLines(tmp_path / "samples.jsonl")
    texts = ["line\nbreak", "\u2028\x85\x0c", "反转", "\ud800 half a character", '"quoted"']
    for text in texts:
        file.append({"step": 0, "text": text})

    assert [record["text"] for record in records(file.path)] == texts


def test_later_records_move_aside_and_nothing_is_lost(tmp_path: Path) -> None:
    file = JsonLines(tmp_path / "samples.jsonl")
    for step in (0, 5, 10, 15):
        file.append({"step": step, "text": "\u2028"})

    file.discard_after(10)
    file.append({"step": 15, "text": "again"})
    file.discard_after(10)

    assert [record["step"] for record in records(file.path)] == [0, 5, 10]
    discarded = records(tmp_path / "samples.jsonl.discarded")
    assert [(record["step"], record["text"]) for record in discarded] == [(15, "\u2028"), (15, "again")]


def test_a_line_torn_by_a_crash_moves_aside(tmp_path: Path) -> None:
    file = JsonLines(tmp_path / "samples.jsonl")
    file.append({"step": 1})
    with file.path.open("a") as torn:
        torn.write('{"step": 2, "te')

    file.discard_after(9)
    file.append({"step": 2})

    assert [record["step"] for record in records(file.path)] == [1, 2]
    assert (tmp_path / "samples.jsonl.discarded").read_text() == '{"step": 2, "te\n'


def test_a_missing_file_has_nothing_to_move(tmp_path: Path) -> None:
    JsonLines(tmp_path / "samples.jsonl").discard_after(3)

    assert list(tmp_path.iterdir()) == []


def test_lines_are_complete_when_append_returns(tmp_path: Path) -> None:
    append_line(tmp_path / "file", "a")
    append_line(tmp_path / "file", "b")

    assert (tmp_path / "file").read_bytes() == b"a\nb\n"
