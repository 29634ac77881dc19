import io

import pytest

from lit_rlhf.commands.chat import main
from lit_rlhf_callbacks.errors import UserError


def chat(monkeypatch, capsys, text, *flags):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    main(["chat", "builtin:tiny", "--max-new-tokens", "8", *flags])
    return capsys.readouterr().out.splitlines()


def test_every_line_is_answered(monkeypatch, capsys):
    answers = chat(monkeypatch, capsys, "reverse abc\n\nreverse stone\n", "--temperature", "0")
    assert len(answers) == 2
    assert not any("<" in answer for answer in answers)


def test_raw_shows_the_prompt_as_the_model_sees_it(monkeypatch, capsys):
    [answer] = chat(monkeypatch, capsys, "abc\n", "--raw")
    assert answer.startswith("<bos><user>abc<assistant>")


def test_a_seed_fixes_the_answers(monkeypatch, capsys):
    lines = "reverse banana\nreverse banana\n"
    first, second = (chat(monkeypatch, capsys, lines, "--seed", seed) for seed in ("1", "1"))
    assert first == second
    assert chat(monkeypatch, capsys, lines, "--seed", "2") != first


def test_a_missing_model_is_one_line():
    with pytest.raises(UserError, match="no-such-run"):
        main(["chat", "./no-such-run"])
