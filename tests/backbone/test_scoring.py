"""What a token scores must depend on nothing but the tokens before it."""

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.backbone.scoring import position_ids_from_mask

ROWS = [[5, 6, 7, 8, 9, 2], [10, 11, 12, 2], [20, 21, 22, 23, 24, 25, 26, 2]]


def loaded(folder: str, **settings) -> Backbone:
    backbone = Backbone(folder, **settings)
    backbone.load()
    return backbone


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2", "cohere"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.filterwarnings("ignore:.*scoring holds all logits")
def test_scores_are_log_softmax_of_the_models_own_logits(make_folder, rows, architecture, temperature):
    folder = make_folder(architecture)
    scores = loaded(folder).score_tokens(*rows, temperature=temperature)

    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    for b, row in enumerate(ROWS):
        with torch.no_grad():
            all_logps = torch.log_softmax(plain(torch.tensor([row])).logits[0].double() / temperature, dim=-1)
        for t in range(2, len(row)):
            assert scores.logps[b, t].item() == pytest.approx(all_logps[t - 1, row[t]].item(), abs=1e-4)
            entropy = -(all_logps[t - 1].exp() * all_logps[t - 1]).sum()
            assert scores.entropy[b, t].item() == pytest.approx(entropy.item(), abs=1e-4)
    assert (scores.logps[~rows.score_mask] == 0).all()


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_scores_do_not_depend_on_padding_or_batch_mates(make_folder, make_rows, architecture):
    backbone = loaded(make_folder(architecture))
    for row in ROWS:
        alone = make_rows([row])
        expected = backbone.score_tokens(*alone).logps[alone.score_mask]
        for batch in (
            make_rows([row], side="left", extra=5),
            make_rows([row], side="right", extra=9),
            make_rows([row, *ROWS], side="left", extra=3),
            make_rows([row, *ROWS], side="right", extra=1),
        ):
            scored = backbone.score_tokens(*batch).logps[0][batch.score_mask[0]]
            torch.testing.assert_close(scored, expected, atol=1e-5, rtol=0)


def test_pad_equal_to_eos_changes_nothing(make_folder, make_rows):
    distinct = loaded(make_folder())
    same = loaded(make_folder(pad_token=None))
    assert same.pad_id == same.eos_ids[0] == 2
    assert distinct.pad_id == 0
    with_distinct = make_rows(ROWS, pad_id=distinct.pad_id)
    with_same = make_rows(ROWS, pad_id=same.pad_id)
    logps = same.score_tokens(*with_same).logps
    torch.testing.assert_close(logps, distinct.score_tokens(*with_distinct).logps, atol=1e-6, rtol=0)
    assert (logps[with_same.input_ids == 2].ne(0) == with_same.score_mask[with_same.input_ids == 2]).all()


@pytest.mark.parametrize(
    ("architecture", "lora", "from_hidden"),
    [
        ("llama", None, True),
        ("gpt2", LoRA(r=2), True),
        ("gemma2", None, False),
        ("cohere", None, False),
        ("llama", LoRA(r=2, target_modules=["lm_head"]), False),
    ],
)
@pytest.mark.filterwarnings("ignore:.*scoring holds all logits")
def test_hidden_states_are_scored_only_where_the_head_is_the_last_step(make_folder, architecture, lora, from_hidden):
    assert loaded(make_folder(architecture), lora=lora).scores_from_hidden == from_hidden


def test_falling_back_to_all_logits_is_said(make_folder):
    with pytest.warns(UserWarning, match="scoring holds all logits"):
        loaded(make_folder("gemma2"))


@pytest.mark.parametrize("lora", [None, LoRA(r=2)])
def test_both_paths_agree_in_value_and_gradient(make_folder, rows, lora):
    backbone = loaded(make_folder(), lora=lora)
    if lora is not None:
        for name, parameter in backbone.policy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.02)
    results = []
    for from_hidden in (True, False):
        backbone.scores_from_hidden = from_hidden
        backbone.zero_grad()
        scores = backbone.score_tokens(*rows, temperature=0.7, entropy_grad=True)
        (scores.logps + 0.1 * scores.entropy).sum().backward()
        grads = [parameter.grad.clone() for parameter in backbone.policy.parameters() if parameter.requires_grad]
        results.append([scores.logps.detach(), scores.entropy.detach(), *grads])
    for from_hidden, from_logits in zip(*results, strict=True):
        torch.testing.assert_close(from_hidden, from_logits, atol=1e-4, rtol=1e-4)


def test_scores_are_fp32_under_autocast(make_folder, rows):
    backbone = loaded(make_folder())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = backbone.score_tokens(*rows)
    assert scores.logps.dtype == scores.entropy.dtype == torch.float32
    exact = backbone.score_tokens(*rows).logps
    assert (scores.logps - exact).abs().max() < 0.5
    assert not torch.equal(scores.logps, exact)  # autocast really was on


def test_scores_are_fp32_with_bf16_weights_and_default_type(make_folder, rows):
    backbone = loaded(make_folder())
    exact = backbone.score_tokens(*rows).logps
    backbone.to(torch.bfloat16)
    torch.set_default_dtype(torch.bfloat16)  # what Lightning's bf16-true does inside a step
    try:
        scores = backbone.score_tokens(*rows)
    finally:
        torch.set_default_dtype(torch.float32)
    assert scores.logps.dtype == scores.entropy.dtype == torch.float32
    assert 0 < (scores.logps - exact).abs().max() < 0.5


@pytest.mark.parametrize("from_hidden", [True, False])
def test_nothing_to_score_is_zero_and_keeps_the_graph(make_folder, rows, from_hidden):
    backbone = loaded(make_folder())
    backbone.scores_from_hidden = from_hidden
    scores = backbone.score_tokens(rows.input_ids, rows.attention_mask, torch.zeros_like(rows.score_mask))
    assert (scores.logps == 0).all()
    scores.logps.sum().backward()
    assert all((weight.grad == 0).all() for weight in backbone.policy.parameters())


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2"])
@pytest.mark.filterwarnings("ignore:.*scoring holds all logits")
def test_next_token_logits_continue_what_score_tokens_scores(make_folder, make_rows, architecture):
    backbone = loaded(make_folder(architecture), gradient_checkpointing=True)
    batch = make_rows(ROWS, side="left")
    logps = backbone.score_tokens(*batch).logps
    width = batch.input_ids.shape[1]
    position_ids = position_ids_from_mask(batch.attention_mask)
    cache = DynamicCache(config=backbone.hf_model.config)
    with torch.no_grad():
        for start, stop in ((0, width - 2), (width - 2, width - 1)):
            logits = backbone.next_token_logits(
                batch.input_ids[:, start:stop], batch.attention_mask[:, :stop], position_ids[:, start:stop], cache
            )
            assert logits.shape == (len(ROWS), 64)
            assert logits.dtype == torch.float32
            chosen = torch.log_softmax(logits, -1).gather(-1, batch.input_ids[:, stop, None]).squeeze(-1)
            torch.testing.assert_close(chosen, logps[:, stop], atol=1e-4, rtol=0)
    assert backbone.policy.training
