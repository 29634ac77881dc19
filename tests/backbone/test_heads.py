"""A score head: where scores are read, what is trained and saved, and that a saved one scores the same anywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.backbone.heads import last_real, new_head
from lit_rlhf_callbacks.errors import UserError


def scorer(folder, *, moved=True, **settings):
    """A loaded reward model whose trainable weights have moved."""
    backbone = Backbone(folder, head="score", **settings)
    backbone.load()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in backbone.parameters():
            if weight.requires_grad and moved:
                weight.add_(0.02 * torch.randn_like(weight))
    return backbone


def pooled(backbone, rows):
    with torch.no_grad():
        return last_real(backbone.score_head(rows.input_ids, rows.attention_mask), rows.attention_mask)


def test_a_new_head_scores_near_zero_and_depends_on_the_seed_alone():
    torch.manual_seed(3)
    first = new_head(1023)
    torch.rand(5)
    assert torch.equal(new_head(1023).weight, first.weight)
    assert first.weight.std().item() == pytest.approx(1 / 1024, rel=0.1)
    assert first.bias is None
    torch.manual_seed(4)
    assert not torch.equal(new_head(1023).weight, first.weight)


def test_last_real_follows_the_mask_on_either_side():
    values = torch.arange(8.0).reshape(2, 4)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]])
    assert last_real(values, mask).tolist() == [1.0, 7.0]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_padding_changes_no_score(make_folder, make_rows, architecture):
    backbone = scorer(make_folder(architecture))
    ids = [[5, 6, 7, 8, 2], [10, 11, 2]]
    alone = torch.cat([pooled(backbone, make_rows([row])) for row in ids])
    for rows in (make_rows(ids, pad_id=2), make_rows(ids, side="left", extra=3), make_rows(ids, pad_id=9, extra=2)):
        torch.testing.assert_close(pooled(backbone, rows), alone, atol=1e-5, rtol=1e-5)


def test_scores_are_fp32_under_autocast(make_folder, rows):
    backbone = scorer(make_folder())
    exact = pooled(backbone, rows)
    with torch.autocast("cpu", torch.bfloat16):
        scores = backbone.score_head(rows.input_ids, rows.attention_mask)
        hidden = backbone.policy(rows.input_ids).last_hidden_state
        expected = hidden.double() @ backbone.head.weight.double()[0]
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores[2].double(), expected[2], atol=1e-5, rtol=1e-5)
    assert not torch.equal(last_real(scores, rows.attention_mask), exact)


@pytest.mark.parametrize("lora", [None, LoRA(r=2)])
def test_every_trained_weight_gets_a_gradient_and_is_in_the_state(make_folder, rows, lora):
    backbone = scorer(make_folder(tie_word_embeddings=False), lora=lora)
    backbone.score_head(rows.input_ids, rows.attention_mask).sum().backward()
    trained = {name: weight for name, weight in backbone.named_parameters() if weight.requires_grad}
    assert "head.weight" in trained
    assert all(weight.grad is not None for weight in trained.values())
    assert set(trained) <= set(backbone.state_dict())
    assert not any("lm_head" in name for name in backbone.state_dict())
    assert any("q_proj" in name for name in trained)


@pytest.mark.parametrize("pad_token", ["<pad>", "<eos>", None])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("lora", [None, LoRA(r=2)], ids=["full", "lora"])
def test_transformers_reads_the_same_scores(make_folder, make_rows, tmp_path, architecture, pad_token, lora):
    backbone = scorer(make_folder(architecture, pad_token=pad_token, scale=3.0), lora=lora)
    ids = [[5, 6, 7, 8, 9, 2], [10, 11, 12, 2], [20, 21, 22, 23, 24]]  # the last without EOS
    expected = pooled(backbone, make_rows(ids))
    backbone.save_model(tmp_path / "saved")
    assert torch.equal(pooled(backbone, make_rows(ids)), expected)  # saving disturbed nothing

    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values())
    assert model.config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.pad_token_id == model.config.pad_token_id != 2
    for side in ("right", "left"):
        rows = make_rows(ids, pad_id=tokenizer.pad_token_id, side=side)
        positions = (rows.attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        with torch.no_grad():
            scores = model.eval()(rows.input_ids, attention_mask=rows.attention_mask, position_ids=positions).logits
        torch.testing.assert_close(scores[:, 0], expected, atol=1e-5, rtol=1e-5)

    reloaded = scorer(str(tmp_path / "saved"), moved=False)
    torch.testing.assert_close(pooled(reloaded, make_rows(ids)), expected, atol=1e-5, rtol=1e-5)
    assert reloaded.eos_ids == backbone.eos_ids


def test_a_pad_that_the_chat_template_uses_is_replaced(make_folder, tmp_path):
    backbone = scorer(make_folder())
    backbone.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} <pad> {% endfor %}"
    backbone.save_model(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").pad_token == "<|pad|>"
    assert backbone.tokenizer.pad_token == "<pad>"


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LoRA(r=2)], ids=["full", "lora"])
def test_a_fresh_process_scores_the_same(make_folder, rows, tmp_path, lora):
    backbone = scorer(make_folder(pad_token="<eos>", scale=3.0), lora=lora)
    backbone.save_model(tmp_path / "run" / "model")
    (tmp_path / "run" / "run.json").write_text("{}")
    script = (
        "import sys, json, torch; from lit_rlhf.backbone import Backbone;"
        "b = Backbone(sys.argv[1], head='score'); b.load(); ids, mask = map(torch.tensor, json.loads(sys.argv[2]));"
        "print(json.dumps(b.score_head(ids, mask).tolist()))"
    )
    arguments = json.dumps([rows.input_ids.tolist(), rows.attention_mask.tolist()])
    command = [sys.executable, "-c", script, str(tmp_path / "run"), arguments]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = backbone.score_head(rows.input_ids, rows.attention_mask)[rows.attention_mask]
    torch.testing.assert_close(torch.tensor(json.loads(output))[rows.attention_mask], expected, atol=1e-5, rtol=1e-5)


def test_a_missing_head_is_one_line(make_folder, tmp_path):
    scorer(make_folder()).save_model(tmp_path / "saved")
    file = tmp_path / "saved" / "model.safetensors"
    weights = load_file(file)
    del weights["score.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 weights of its architecture \(first: score.weight\)") as error:
        Backbone(str(tmp_path / "saved"), head="score").load()
    assert "\n" not in str(error.value)


def test_models_that_do_not_go_with_the_head_are_refused(make_folder, tmp_path):
    scorer(make_folder()).save_model(tmp_path / "saved")
    with pytest.raises(UserError, match="is a reward model, which writes no text"):
        Backbone(str(tmp_path / "saved"))
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    config["id2label"] = {"0": "bad", "1": "good"}
    (tmp_path / "saved" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="has 2 labels"):
        Backbone(str(tmp_path / "saved"), head="score")
    with pytest.raises(UserError, match="no sequence classifier for cohere models"):
        Backbone(make_folder("cohere"), head="score")
    with pytest.raises(UserError, match="of no use to a reward model"):
        Backbone(make_folder(), head="score", reference="copy")


def test_an_adapter_of_a_classifier_is_refused(make_folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    folder = make_folder()
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=2)).save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match="adapter of a classifier; merge it"):
        Backbone(str(tmp_path / "adapter"), head="score")


def test_an_adapter_of_a_policy_is_merged_first(make_folder, rows, tmp_path):
    policy = Backbone(make_folder(scale=3.0), lora=LoRA(r=2))
    policy.load()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in policy.policy.parameters():
            weight.add_(0.02 * torch.randn_like(weight) * weight.requires_grad)
    policy.save_model(tmp_path / "adapter", merge_adapter=False)
    backbone = scorer(str(tmp_path / "adapter"), moved=False)
    with torch.no_grad():
        hidden = policy.hf_model.base_model(rows.input_ids, rows.attention_mask, use_cache=False).last_hidden_state
    expected = (hidden @ backbone.head.weight[0])[rows.attention_mask]
    scores = backbone.score_head(rows.input_ids, rows.attention_mask)[rows.attention_mask]
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)


def test_the_adapter_alone_is_not_saved(make_folder, tmp_path):
    backbone = scorer(make_folder(), lora=LoRA(r=2))
    with pytest.raises(UserError, match="no part of its adapter"):
        backbone.save_model(tmp_path / "saved", merge_adapter=False)


def test_a_policy_has_no_scores(make_folder, rows):
    backbone = Backbone(make_folder())
    backbone.load()
    with pytest.raises(ValueError, match="no score head"):
        backbone.score_head(rows.input_ids, rows.attention_mask)


@pytest.mark.ddp
def test_sharded_over_two_ranks_it_scores_and_learns_the_same(make_folder, make_rows, tmp_path):
    rows = make_rows([[5, 6, 7, 8, 9, 2], [10, 11, 12, 13, 2], [20, 21, 22, 23, 24, 2], [30, 31, 2]])
    torch.save(tuple(rows), tmp_path / "rows.pt")
    cases = [
        {"folder": make_folder(scale=3.0), "lora": lora, "saved": str(tmp_path / f"saved-{lora}")}
        for lora in (False, True)
    ]
    arguments = json.dumps({"cases": cases, "out": str(tmp_path)})
    worker = Path(__file__).parent / "head_worker.py"
    ranks = [
        subprocess.Popen([sys.executable, worker, arguments, str(rank)], stderr=subprocess.PIPE) for rank in (0, 1)
    ]
    errors = [rank.communicate(timeout=300)[1].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)
    seen = [torch.load(tmp_path / f"seen{rank}.pt") for rank in (0, 1)]
    for case, *of_ranks in zip(cases, *seen, strict=True):
        torch.manual_seed(0)
        backbone = scorer(case["folder"], moved=False, lora=LoRA(r=2) if case["lora"] else None)
        optimizer = torch.optim.SGD([weight for weight in backbone.parameters() if weight.requires_grad], lr=0.01)
        scores = backbone.score_head(rows.input_ids, rows.attention_mask)
        (scores[rows.attention_mask].sum() / 2).backward()  # FSDP2 takes the mean over ranks
        optimizer.step()
        saved = scorer(case["saved"], moved=False)
        for rank, theirs in enumerate(of_ranks):
            mask = rows.attention_mask[rank::2]
            after = backbone.score_head(rows.input_ids[rank::2], mask)
            torch.testing.assert_close(theirs["head"], backbone.head.weight.grad, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(theirs["before"][mask], scores[rank::2][mask], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(theirs["after"][mask], after[mask], atol=1e-5, rtol=1e-4)
            again = saved.score_head(rows.input_ids[rank::2], mask)
            torch.testing.assert_close(again[mask], after[mask], atol=1e-5, rtol=1e-4)
