import pytest
import torch

from lit_rlhf.backbone import Backbone
from lit_rlhf.rollout import NativeSampler, NoiseKey, Prompt, Sampling
from lit_rlhf_callbacks.errors import UserError

KEY = NoiseKey(seed=0, purpose="train", phase=3)


def full_logits(backbone, completion):
    """Logits of the completion's tokens from one forward without cache or padding, [L, V]."""
    ids = torch.tensor([completion.prompt_ids + completion.ids])
    with torch.no_grad():
        logits = backbone.policy(input_ids=ids).logits[0]
    return logits[len(completion.prompt_ids) - 1 : -1]


def logps_of(logits, completion):
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion.ids)[:, None])[:, 0]


def test_order_is_by_prompt_then_sample(backbone, prompts):
    completions = NativeSampler(backbone).generate(prompts, 3, Sampling(max_new_tokens=4), KEY)
    assert [(c.prompt_id, c.sample) for c in completions] == [(p.prompt_id, s) for p in prompts for s in range(3)]
    assert [c.prompt_ids for c in completions] == [p.ids for p in prompts for _ in range(3)]


def test_completions_end_at_first_eos_or_limit(backbone, prompts):
    completions = NativeSampler(backbone).generate(prompts, 8, Sampling(max_new_tokens=12), KEY)
    assert {c.finish for c in completions} == {"stop", "length"}
    assert len({c.ids[-1] for c in completions if c.finish == "stop"}) > 1  # several EOS ids
    for c in completions:
        assert not set(c.ids[:-1]) & set(backbone.eos_ids)
        assert (c.ids[-1] in backbone.eos_ids) == (c.finish == "stop")
        assert len(c.ids) == len(c.logps) == 12 or c.finish == "stop"


@pytest.mark.parametrize(
    "sampling", [Sampling(max_new_tokens=12), Sampling(temperature=0.6, top_k=20, top_p=0.9, max_new_tokens=12)]
)
def test_tokens_do_not_depend_on_batch_mates(backbone, prompts, sampling):
    expected = NativeSampler(backbone).generate(prompts, 4, sampling, KEY)
    entropy = -torch.tensor([logp for c in expected for logp in c.logps]).mean()
    assert entropy > 0.3

    def same(completions):
        assert [c.ids for c in completions] == [c.ids for c in expected]
        for c, e in zip(completions, expected, strict=True):
            torch.testing.assert_close(torch.tensor(c.logps), torch.tensor(e.logps), rtol=0, atol=1e-4)

    same([c for p in prompts for c in NativeSampler(backbone).generate([p], 4, sampling, KEY)])
    same(NativeSampler(backbone, compaction=False).generate(prompts, 4, sampling, KEY))
    for max_rows in (3, 8):
        same(NativeSampler(backbone, max_rows=max_rows).generate(prompts, 4, sampling, KEY))
    backwards = NativeSampler(backbone).generate(prompts[::-1], 4, sampling, KEY)
    same([c for i in range(0, len(backwards), 4)[::-1] for c in backwards[i : i + 4]])


def test_prompts_are_read_once_and_ended_rows_leave(backbone, prompts, rows_read):
    NativeSampler(backbone).generate(prompts, 8, Sampling(max_new_tokens=16), KEY)
    prefill, *decode = rows_read
    assert prefill == len(prompts)
    assert decode[0] == 48
    assert decode == sorted(decode, reverse=True)
    assert decode[-1] < 24
    rows_read.clear()
    NativeSampler(backbone, compaction=False).generate(prompts, 8, Sampling(max_new_tokens=16), KEY)
    assert set(rows_read[1:]) == {48}
    rows_read.clear()
    NativeSampler(backbone, max_rows=20).generate(prompts, 8, Sampling(max_new_tokens=16), KEY)
    assert rows_read.count(2) == 3  # whole groups: 16 rows, three times
    assert max(rows_read) == 16


def test_logps_are_of_the_distribution_sampled_from(backbone, prompts):
    for c in NativeSampler(backbone).generate(prompts, 2, Sampling(temperature=0.6, max_new_tokens=10), KEY):
        expected = logps_of(full_logits(backbone, c) / 0.6, c)
        torch.testing.assert_close(torch.tensor(c.logps), expected, rtol=0, atol=1e-4)


def test_greedy_takes_the_best_token_and_scores_it_at_temperature_one(backbone, prompts):
    sampling = Sampling(temperature=0, top_k=3, top_p=0.5, max_new_tokens=10)
    for c in NativeSampler(backbone).generate(prompts, 1, sampling, KEY):
        logits = full_logits(backbone, c)
        assert logits.argmax(-1).tolist() == c.ids
        torch.testing.assert_close(torch.tensor(c.logps), logps_of(logits, c), rtol=0, atol=1e-4)


def test_samples_rounds_and_phases_differ(backbone, prompts):
    sampling, sampler = Sampling(max_new_tokens=8), NativeSampler(backbone)
    first = sampler.generate(prompts, 4, sampling, KEY)
    assert len({tuple(c.ids) for c in first[:4]}) > 1
    for other in (
        NoiseKey(0, "train", 4),
        NoiseKey(0, "train", 3, round=1),
        NoiseKey(0, "eval", 3),
        NoiseKey(1, "train", 3),
    ):
        assert [c.ids for c in sampler.generate(prompts, 4, sampling, other)] != [c.ids for c in first]


def test_context_is_a_limit(backbone):
    long, short = Prompt(0, [9] * (backbone.context_length - 2)), Prompt(1, [9, 10])
    backbone.eos_ids = ()
    completions = NativeSampler(backbone, compaction=False).generate([long, short], 1, Sampling(max_new_tokens=20), KEY)
    assert [len(c.ids) for c in completions] == [2, 20]
    assert [c.finish for c in completions] == ["length", "length"]
    alone = NativeSampler(backbone).generate([short], 1, Sampling(max_new_tokens=20), KEY)
    assert alone[0].ids == completions[1].ids


def test_what_an_ended_row_goes_on_to_say_is_forgotten(backbone):
    prompts = [Prompt(0, [9] * (backbone.context_length - 2)), Prompt(1, [9, 10])]
    completions = NativeSampler(backbone, compaction=False).generate(prompts, 8, Sampling(max_new_tokens=20), KEY)
    expected = NativeSampler(backbone).generate(prompts, 8, Sampling(max_new_tokens=20), KEY)
    assert [(c.ids, c.finish) for c in completions] == [(c.ids, c.finish) for c in expected]
    assert all((c.ids[-1] in backbone.eos_ids) == (c.finish == "stop") for c in completions)


def test_prompts_that_cannot_be_completed_are_named(backbone):
    with pytest.raises(UserError, match=r"prompt 7 .*no room"):
        NativeSampler(backbone).generate([Prompt(7, [9] * backbone.context_length)], 1, Sampling(), KEY)
    with pytest.raises(UserError, match="prompt 8 has no tokens"):
        NativeSampler(backbone).generate([Prompt(8, [])], 1, Sampling(), KEY)


def test_no_prompts_no_completions(backbone, rows_read):
    assert NativeSampler(backbone).generate([], 4, Sampling(), KEY) == []
    assert rows_read == []


def test_policy_that_has_diverged_is_named(backbone, prompts):
    backbone.policy.get_output_embeddings().weight.data.fill_(float("nan"))
    for sampling in (Sampling(max_new_tokens=2), Sampling(max_new_tokens=2, top_p=0.9), Sampling(temperature=0)):
        with pytest.raises(UserError, match="prompt 100: the policy's logits are not finite"):
            NativeSampler(backbone).generate(prompts, 1, sampling, KEY)


def test_layers_without_keys_and_values_are_refused(backbone):
    backbone.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(UserError, match=r"layers of type linear_attention"):
        NativeSampler(backbone)


def test_flags_grad_mode_and_random_state_are_left_alone(backbone, prompts):
    backbone.policy.base_model.eval()
    flags = [module.training for module in backbone.modules()]
    assert len(set(flags)) == 2
    state = torch.get_rng_state()
    NativeSampler(backbone).generate(prompts, 2, Sampling(top_p=0.9, max_new_tokens=4), KEY)
    assert [module.training for module in backbone.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_gradient_checkpointing_keeps_the_cache(folder, backbone, prompts):
    expected = NativeSampler(backbone).generate(prompts, 2, Sampling(max_new_tokens=6), KEY)
    checkpointing = Backbone(str(folder), gradient_checkpointing=True)
    checkpointing.load()
    assert NativeSampler(checkpointing).generate(prompts, 2, Sampling(max_new_tokens=6), KEY) == expected
