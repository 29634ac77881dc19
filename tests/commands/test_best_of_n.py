import json
import random
from itertools import combinations

import pytest

from lit_rlhf.commands.best_of_n import Scored, best_of_n, main, pairwise_accuracy, pass_at_n
from lit_rlhf_callbacks.errors import UserError


def group_of(num, seed):
    """Completions with many ties, right more often when their score is high."""
    rng = random.Random(seed)
    scores = [rng.randrange(4) for _ in range(num)]
    return [Scored(float(score), rng.random() < score / 4) for score in scores]


def expected(group, n):
    """The same by trying every choice of n."""
    chances = []
    for chosen in combinations(group, n):
        best = [one.is_correct for one in chosen if one.score == max(one.score for one in chosen)]
        chances.append(sum(best) / len(best))
    return sum(chances) / len(chances)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_mean_over_every_choice(n, seed):
    group = group_of(7, seed)
    assert best_of_n(group, n) == pytest.approx(expected(group, n))
    anyone = [any(one.is_correct for one in chosen) for chosen in combinations(group, n)]
    assert pass_at_n(group, n) == pytest.approx(sum(anyone) / len(anyone))


def test_a_perfect_score_reaches_the_ceiling_and_a_constant_one_reaches_chance():
    perfect = [Scored(float(right), right) for right in (True, False, False, True, False)]
    constant = [Scored(0.5, one.is_correct) for one in perfect]
    for n in range(1, 6):
        assert best_of_n(perfect, n) == pass_at_n(perfect, n)
        assert best_of_n(constant, n) == pytest.approx(2 / 5)
    assert pairwise_accuracy(perfect) == 1.0
    assert pairwise_accuracy(constant) == 0.5


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def row(prompt, score, correct):
    return {"prompt": prompt, "completion": "x", "score": score, "correct": correct}


def test_the_table(tmp_path, capsys):
    chat = [{"role": "user", "content": "a"}]
    rows = [row(chat, 0.1, False), row("b", -1, 1), row(chat, 0.9, True), row("b", -2, 0), row("b", 0, False)]
    main(["best-of-n", write(tmp_path / "scored.jsonl", rows)])
    out = capsys.readouterr().out
    assert "5 completions, 2 prompts with 2 to 3 each" in out
    lines = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in out.splitlines() if "│" in line]
    assert [line[0] for line in lines] == ["1", "2"]
    # of chat: 1/2, then 1; of b: 1/3, then (pairs: right first, wrong, wrong) 1/3
    assert [line[1] for line in lines] == ["0.417 ± 0.083", "0.667 ± 0.333"]
    assert lines[1][2] == "0.833 ± 0.167"
    assert "pairwise accuracy: 0.750 ± 0.250 (2 prompts" in out
    assert "top-1 accuracy: 0.500 ± 0.500" in out
    assert "ends at n = 2" in out


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "a", "completion": "x", "score": 1.0}, "row 2: no correct"),
        (row("a", "high", True), "row 2: score must be a number, not 'high'"),
        (row("a", float("nan"), True), "row 2: score must be a number"),
        (row("a", 1.0, "yes"), "row 2: correct must be true or false, not 'yes'"),
        ([1], "row 2: the row is not a JSON object"),
    ],
)
def test_a_bad_row_is_one_line_with_its_place(tmp_path, bad, message):
    path = write(tmp_path / "scored.jsonl", [row("a", 1.0, True), bad])
    with pytest.raises(UserError, match=f"scored.jsonl, {message}") as error:
        main(["best-of-n", path])
    assert "\n" not in str(error.value)


def test_an_empty_or_missing_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="there is no row"):
        main(["best-of-n", write(tmp_path / "scored.jsonl", [])])
    with pytest.raises(UserError, match="there is no file"):
        main(["best-of-n", str(tmp_path / "other.jsonl")])
