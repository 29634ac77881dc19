"""The tokenizer of the embedded model: one token per byte, five special tokens, a chat template."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = {
    "pad_token": "<pad>",
    "bos_token": "<bos>",
    "eos_token": "<eos>",
}
ROLE_TOKENS = ["<user>", "<assistant>"]

# `-` trims the white space of the template itself. <bos> comes once, from here alone; a system message stands at the
# head of the next user turn; an answer ends in <eos>, and the generation prompt is a prefix of the whole.
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- set system = namespace(text='') %}
{%- for message in messages %}
{%- if message['role'] == 'system' %}
{%- set system.text = message['content'] + '\\n' %}
{%- elif message['role'] == 'user' %}
{{- '<user>' + system.text + message['content'] }}
{%- set system.text = '' %}
{%- elif message['role'] == 'assistant' %}
{{- '<assistant>' }}
{%- generation %}{{- message['content'] + eos_token }}{%- endgeneration %}
{%- else %}
{{- raise_exception("this chat template knows the roles system, user and assistant, not '" + message['role'] + "'") }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"""


def build_tokenizer(context_length: int) -> PreTrainedTokenizerFast:
    """Build the byte-level tokenizer: 256 byte symbols, no merges, 261 tokens in all.

    Ids 0 to 4 are ``<pad> <bos> <eos> <user> <assistant>``; a byte's token is named as in GPT-2. Nothing is added to
    plain text: ``<bos>`` comes from the chat template, once.

    Args:
        context_length: Tokens the model can read; kept as ``model_max_length``.

    Returns:
        A tokenizer that saves as an ordinary Hugging Face folder.
    """
    names = [*SPECIAL_TOKENS.values(), *ROLE_TOKENS]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in [*SPECIAL_TOKENS.values(), *ROLE_TOKENS]]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        extra_special_tokens={"user_token": "<user>", "assistant_token": "<assistant>"},
        chat_template=CHAT_TEMPLATE,
        model_max_length=context_length,
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )
