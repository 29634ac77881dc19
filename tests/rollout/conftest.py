import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lit_rlhf.rollout import Prompt

VOCAB = 61
CONTEXT = 48


class TinyBackbone(nn.Module):
    """As much of a backbone as a sampler sees."""

    def __init__(self, policy, eos_ids=tuple(range(2, 8)), pad_id=2):
        super().__init__()
        self.policy = policy
        self.eos_ids = eos_ids
        self.pad_id = pad_id
        self.context_length = CONTEXT
        self.is_sharded = False
        self.num_rows_read = []

    def next_token_logits(self, input_ids, attention_mask, position_ids, cache):
        self.num_rows_read.append(len(input_ids))
        output = self.policy(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()


def _gpt2():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    return GPT2LMHeadModel(config)


def _llama():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(params=[_gpt2, _llama], ids=["gpt2", "llama"])
def backbone(request):
    """A tiny model that ends now and then (pad is one of its EOS ids), with weights large enough to be decided."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = request.param()
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter.data.mul_(12)
    return TinyBackbone(policy)


@pytest.fixture
def prompts():
    """Prompts of different lengths, in no order of length, with ids that are no positions."""
    return [
        Prompt(prompt_id=100 - i, ids=[8 + (i * k) % 50 for k in range(1, length + 1)])
        for i, length in enumerate((5, 1, 9, 3, 9, 2))
    ]
