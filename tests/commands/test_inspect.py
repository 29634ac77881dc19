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


def test_prompts_have_no_mask_to_see(in_tmp_dir):
    with pytest.raises(UserError, match="PromptData has prompts only"):
        main(["inspect", "--config", "grpo"])
