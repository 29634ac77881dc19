"""A trained reward model rewards completions with the very scores it was trained to give."""

import json

import pytest
import torch

from lit_rlhf.backbone import Backbone
from lit_rlhf.backbone.heads import last_real
from lit_rlhf.data import PreferenceData
from lit_rlhf.data.batches import collate
from lit_rlhf.rewards import RewardSet
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reward model on the embedded model, with a head that tells texts apart."""
    backbone = Backbone("builtin:tiny", head="score")
    backbone.load()
    torch.manual_seed(0)
    torch.nn.init.normal_(backbone.head.weight)
    out = tmp_path_factory.mktemp("rm")
    backbone.save_model(out)
    return str(out)


def rewards(specs, prompts, completions):
    table = RewardSet(specs)(
        prompts,
        completions,
        completion_ids=[[1]] * len(prompts),
        prompt_ids=list(range(len(prompts))),
        columns={},
    )
    return table.scores


@pytest.mark.parametrize("form", ["messages", "text"])
def test_scores_are_those_of_training(folder, tmp_path, form):
    data = PreferenceData(options={"num_rows": 20}, num_eval=4)
    if form == "text":
        rows = [{"prompt": f"say {'ab' * n} ", "chosen": "b" * n + "a", "rejected": "c" * n} for n in range(1, 13)]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = PreferenceData(train=str(tmp_path / "pairs.jsonl"), num_eval=2)
    data.setup("fit")
    records = [row.record for row in data.loaded["train"]]
    backbone = Backbone(folder, head="score")
    backbone.load()
    data.tokenise(backbone.tokenizer)
    batch = collate(list(data.train_examples), backbone.pad_id)
    with torch.no_grad():
        values = backbone.score_head(batch["input_ids"], batch["attention_mask"])
    expected = last_real(values, batch["attention_mask"])
    assert expected.std() > 0.1

    prompts = [record.prompt for record in records for _ in range(2)]
    completions = [completion for record in records for completion in record.completions]
    scores = rewards([{"function": "reward_model", "model": folder}], prompts, completions)
    torch.testing.assert_close(scores[:, 0], expected, atol=1e-5, rtol=1e-5)


def test_a_probability_is_the_sigmoid(folder):
    raw = {"function": "reward_model", "name": "raw", "model": folder}
    share = {"function": "reward_model", "name": "share", "model": folder, "probability": True}
    scores = rewards([raw, share], ["abc", "de", ""], ["cba", "ed", "x"])
    torch.testing.assert_close(scores[:, 0].sigmoid(), scores[:, 1])


def test_a_batch_of_any_size_gives_the_same_scores(folder, monkeypatch):
    spec = [{"function": "reward_model", "model": folder}]
    prompts, completions = ["a" * n for n in range(1, 9)], ["b" * n for n in range(8, 0, -1)]
    together = rewards(spec, prompts, completions)
    monkeypatch.setattr("lit_rlhf.rewards.learned.MAX_TOKENS", 12)
    torch.testing.assert_close(rewards(spec, prompts, completions), together, atol=1e-5, rtol=1e-5)


def test_a_long_prompt_is_cut_from_the_left(folder):
    spec = [{"function": "reward_model", "model": folder, "max_length": 12}]
    scores = rewards(spec, ["x" * 50 + "abc", "y" * 90 + "abc", "abd"], ["cba"] * 3)
    assert scores[0] != scores[2]
    assert torch.isfinite(scores).all()


def test_a_policy_is_no_reward_model():
    with pytest.raises(UserError, match="'builtin:tiny' has no score head"):
        RewardSet([{"function": "reward_model", "model": "builtin:tiny"}])
    with pytest.raises(UserError, match="needs the setting 'model'"):
        RewardSet(["reward_model"])


def test_weights_are_read_at_the_first_call(folder):
    [reward] = RewardSet([{"function": "reward_model", "model": folder}]).rewards
    assert not reward.function.backbone.is_loaded
    assert reward.required == ("prompts", "completions")
