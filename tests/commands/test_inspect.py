"""``inspect``: what a run would train on, from the config of the run."""

import json

import pytest

from lit_rlhf.commands.inspect import main
from lit_rlhf_callbacks.errors import UserError


def test_a_config_shows_counts_and_a_sample_with_its_mask(in_tmp_dir, capsys):
    main(["inspect", "--config", "sft", "--data.limit", "50", "--show", "2"])
    out = capsys.readouterr().out
    assert "50 examples" in out
    assert "min 4, median 7, max 9" in out
    assert out.count("reverse ") == 2
    assert "<eos>⟧" in out
    assert not list(in_tmp_dir.iterdir())  # nothing was run


def test_own_data_is_checked_with_the_same_flags_as_a_run(in_tmp_dir, capsys):
    (in_tmp_dir / "mine.jsonl").write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n")
    main(["inspect", "--config", "dpo", "--data.train", "mine.jsonl"])
    assert "mine.jsonl, row 1" in capsys.readouterr().out
    with pytest.raises(UserError, match="needs supervised data"):
        main(["inspect", "--config", "sft", "--data", "PreferenceData", "--data.train", "mine.jsonl"])


def test_prompts_are_shown_as_the_model_is_given_them(in_tmp_dir, capsys):
    main(["inspect", "--config", "grpo", "--show", "2"])
    out = capsys.readouterr().out
    assert out.count("reverse ") == 2
    out = " ".join(out.split())
    assert "256 held out" in out
    assert "tells a right answer from a wrong and an empty one" in out
    assert "warning" not in out
    assert not list(in_tmp_dir.iterdir())


def test_a_reward_function_that_would_reward_anything_is_told_of_before_the_run(in_tmp_dir, capsys):
    (in_tmp_dir / "lazy.py").write_text("def lazy(completions, answer):\n    return [1.0 for _ in completions]\n")
    rows = [{"prompt": "say a<eos>", "answer": "a"}, {"prompt": "say b", "answer": "b"}] * 8
    (in_tmp_dir / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--data.prompts", "mine.jsonl", "--model.rewards", "[lazy.lazy]"]
    main(["inspect", "--config", "grpo", *flags])
    out = " ".join(capsys.readouterr().out.split())
    assert "prompts end with the stop token" in out
    assert "held-out prompts are trained on, too" in out
    assert "'lazy' scores all known answers alike" in out


def test_a_model_and_data_that_do_not_go_together_are_one_line(in_tmp_dir):
    with pytest.raises(UserError, match="SFT learns from rows"):
        main(["inspect", "--config", "sft", "--data", "PromptData"])
    with pytest.raises(UserError, match="reads its prompts from"):
        main(["inspect", "--config", "grpo", "--data", "SupervisedData", "--data.train", "builtin:reverse_words"])


def test_a_column_that_a_reward_needs_is_missed_before_the_run(in_tmp_dir):
    (in_tmp_dir / "need.py").write_text("def gold(completions, gold):\n    return [1.0 for _ in completions]\n")
    with pytest.raises(UserError, match="'gold' needs 'gold'"):
        main(["inspect", "--config", "grpo", "--model.rewards", "[need.gold]"])
