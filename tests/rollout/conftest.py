import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from lit_rlhf.backbone import Backbone
from lit_rlhf.rollout import Prompt

VOCAB_SIZE = 61
CONTEXT = 48
EOS_IDS = [2, 3, 4, 5, 6, 7]


def make_config(architecture):
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": 1, "eos_token_id": EOS_IDS, "pad_token_id": EOS_IDS[0]}
    if architecture == "gpt2":
        return GPT2Config(n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, **common)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        **common,
    }
    if architecture == "windowed":  # the second layer sees three tokens only
        return Qwen2Config(use_sliding_window=True, sliding_window=3, max_window_layers=1, **shape)
    return LlamaConfig(**shape)


@pytest.fixture(scope="session", params=["gpt2", "llama", "windowed"])
def folder(request, tmp_path_factory):
    """A tiny model that ends now and then; its pad token is one of its EOS tokens."""
    folder = tmp_path_factory.mktemp(request.param)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(make_config(request.param))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.mul_(12)  # far from uniform, so that a mistake shows
    model.generation_config.eos_token_id = EOS_IDS
    model.save_pretrained(folder)
    vocabulary = {"<pad>": 2, "<bos>": 1, **{f"w{i}": i for i in (0, *range(3, VOCAB_SIZE))}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<pad>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def backbone(folder):
    backbone = Backbone(str(folder), gradient_checkpointing=False)
    backbone.load()
    assert set(backbone.eos_ids) == set(EOS_IDS)
    return backbone


@pytest.fixture
def rows_read(backbone):
    """How many rows each forward pass of the policy had."""
    counts = []
    backbone.policy.register_forward_pre_hook(
        lambda _, args, kwargs: counts.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    return counts


@pytest.fixture
def prompts():
    """Prompts of different lengths, in no order of length, with ids that are no positions."""
    return [
        Prompt(prompt_id=100 - i, ids=[8 + (i * k) % 50 for k in range(1, length + 1)])
        for i, length in enumerate((5, 1, 9, 3, 9, 2))
    ]
