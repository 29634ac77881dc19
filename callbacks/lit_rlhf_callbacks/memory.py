"""How many bytes training a transformer takes, part by part: pure functions of plain numbers.

A decoder block is Llama's (grouped-query attention with a fused kernel, a gated MLP, two RMSNorms, no biases); others
come close. Counted is what autograd keeps for the backward, tensor by tensor; ``docs/memory.md`` holds the formulas
against what was measured. Not counted: a kernel's short-lived workspace, fragmentation, the CUDA context (0.3 to 0.6
GiB). All results are bytes.
"""

from typing import Any, Literal, NamedTuple

Precision = Literal["32-true", "bf16-mixed", "bf16-true"]
WEIGHT_BYTES: dict[Precision, int] = {"32-true": 4, "bf16-mixed": 4, "bf16-true": 2}
COMPUTE_BYTES: dict[Precision, int] = {"32-true": 4, "bf16-mixed": 2, "bf16-true": 2}
LOGIT_COPIES = 4  # logits, their log-softmax, and two temporaries (entropy, or the gradient), all fp32
MAX_LOGITS = 2**24  # where log-probs are computed in chunks, logits of one chunk
LINEARS_PER_LAYER = 7


class ModelShape(NamedTuple):
    """The numbers of a transformer that its memory depends on."""

    num_parameters: int
    num_trainable: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int


def read_shape(config: Any, num_parameters: int | None = None, num_trainable: int | None = None) -> ModelShape:
    """Read a shape off a Hugging Face configuration, or whatever has its attributes.

    Args:
        config: With ``hidden_size``, ``num_hidden_layers``, ``num_attention_heads``, ``vocab_size``; optionally
            ``num_key_value_heads``, ``head_dim``, ``intermediate_size``, ``tie_word_embeddings``.
        num_parameters: None counts them by `count_parameters`.
        num_trainable: None takes all.
    """
    get_text_config = getattr(config, "get_text_config", None)  # of models that also see
    config = get_text_config() if get_text_config is not None else config
    hidden, heads = config.hidden_size, config.num_attention_heads
    shape = ModelShape(
        num_parameters=0,
        num_trainable=0,
        hidden_size=hidden,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or hidden // heads,
        vocab_size=config.vocab_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 4 * hidden,
    )
    if num_parameters is None:
        num_parameters = count_parameters(shape, is_tied=bool(getattr(config, "tie_word_embeddings", False)))
    trainable = num_parameters if num_trainable is None else num_trainable
    return shape._replace(num_parameters=num_parameters, num_trainable=trainable)


def count_parameters(shape: ModelShape, is_tied: bool) -> int:
    """Count the weights of a Llama from its widths.

    Args:
        shape: Its own counts are not read.
        is_tied: Whether the lm head is the embedding.

    Example:
        >>> count_parameters(ModelShape(0, 0, 128, 4, 4, 4, 32, 261, 352), is_tied=True)  # builtin:tiny
        837376
    """
    attention = 2 * shape.hidden_size * (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    layer = attention + 3 * shape.hidden_size * shape.intermediate_size + 2 * shape.hidden_size
    embeddings = shape.vocab_size * shape.hidden_size * (1 if is_tied else 2)
    return embeddings + shape.num_layers * layer + shape.hidden_size


def count_lora_parameters(shape: ModelShape, rank: int) -> int:
    """Count the adapters of rank r on all seven linear layers of each block: r (inputs + outputs) each (2106.09685).

    Example:
        >>> count_lora_parameters(ModelShape(0, 0, 128, 4, 4, 4, 32, 261, 352), rank=16)
        157696
    """
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    return shape.num_layers * rank * (2 * (hidden + queries) + 2 * (hidden + keys) + 3 * (hidden + inner))


# -- what is there all the time -----------------------------------------------------------------------------------


def weight_bytes(num_parameters: int, bytes_per_weight: int = 4) -> int:
    """Weights of any model: the policy, a frozen reference, a reward or value model.

    Example:
        >>> weight_bytes(7_000_000_000, 2)
        14000000000
    """
    return num_parameters * bytes_per_weight


def gradient_bytes(num_trainable: int, bytes_per_weight: int = 4) -> int:
    """Gradients, which have the type of their weights; frozen weights have none."""
    return num_trainable * bytes_per_weight


def adam_bytes(num_trainable: int, bytes_per_state: int = 4) -> int:
    """Both moments of Adam (1412.6980), which PyTorch keeps in the type of the weights: 8 bytes a weight in fp32.

    PyTorch also keeps a count of 4 bytes per *tensor*, not counted here.
    """
    return 2 * num_trainable * bytes_per_state


def autocast_bytes(num_parameters: int) -> int:
    """The 16-bit copies of the weights that autocast makes in the forward and the backward still needs."""
    return 2 * num_parameters


def static_bytes_per_parameter(precision: Precision, fp32_moments: bool = False) -> int:
    """Weight, gradient and Adam's moments of one trained weight (the usual 16, 12 or 8).

    Args:
        precision: ``bf16-mixed`` keeps fp32 weights, so it saves nothing here.
        fp32_moments: An optimiser that keeps fp32 moments of 16-bit weights; PyTorch's own does not.

    Example:
        >>> static_bytes_per_parameter("32-true"), static_bytes_per_parameter("bf16-mixed")
        (16, 16)
        >>> static_bytes_per_parameter("bf16-true"), static_bytes_per_parameter("bf16-true", fp32_moments=True)
        (8, 12)
    """
    size = WEIGHT_BYTES[precision]
    return weight_bytes(1, size) + gradient_bytes(1, size) + adam_bytes(1, 4 if fp32_moments else size)


def score_head_bytes(hidden_size: int, precision: Precision) -> int:
    """A trained reward or value head: one row of weights with gradient and moments."""
    return hidden_size * static_bytes_per_parameter(precision)


# -- what a micro-batch adds --------------------------------------------------------------------------------------


def layer_bytes(shape: ModelShape, precision: Precision, lora_rank: int = 0, is_padded: bool = False) -> int:
    """What one block keeps of one token for its backward.

    Each RMSNorm keeps its input in fp32 and, unless its weight is frozen, its normalised output; then come the inputs
    of the linear layers, queries, keys, values and output of the attention with a log-sum per head, and the gate, its
    SiLU, the other branch and their product. Autocast casts a shared input once per layer that reads it; adapters
    of fp32 on a 16-bit base do so too, to fp32.

    Args:
        shape: Of the model.
        precision: Lightning's name.
        lora_rank: Of adapters on all linear layers of a frozen base; 0 trains everything.
        is_padded: Whether an attention mask is needed: keys and values are then repeated for every query head.

    Example:
        >>> llama_7b = ModelShape(6_738_415_616, 6_738_415_616, 4096, 32, 32, 32, 128, 32000, 11008)
        >>> layer_bytes(llama_7b, "bf16-true") / 4096  # 34 for a block of GPT-3 (2205.05198, eq. 1)
        45.533203125
    """
    size, hidden, inner = COMPUTE_BYTES[precision], shape.hidden_size, shape.intermediate_size
    queries = shape.num_heads * shape.head_dim
    keys = queries if is_padded else shape.num_kv_heads * shape.head_dim
    upcast = bool(lora_rank) and precision == "bf16-true"
    norm = 4 * hidden + 4
    if not lora_rank:
        norm += hidden * WEIGHT_BYTES[precision]
    if upcast:
        inputs = 5 * 4 * hidden + 4 * queries
    elif precision == "bf16-mixed":
        inputs = 5 * size * hidden
    else:
        inputs = 2 * size * hidden
    attention = size * (2 * queries + 2 * keys) + 4 * shape.num_heads
    mlp = 3 * size * inner + (4 if upcast else size) * inner
    adapters = LINEARS_PER_LAYER * lora_rank * (4 if upcast else size)
    return 2 * norm + inputs + attention + mlp + adapters


def activation_bytes(
    shape: ModelShape,
    num_rows: int,
    length: int,
    precision: Precision,
    checkpointing: bool = False,
    lora_rank: int = 0,
    is_padded: bool = False,
) -> int:
    """What a forward of a micro-batch keeps for the backward, without logits.

    Rows x length x width x depth; with gradient checkpointing only each block's input, and one block in full while
    it is computed again (1604.06174).

    Args:
        shape: Of the model.
        num_rows: Rows of the micro-batch.
        length: Tokens they are padded to.
        precision: Lightning's name.
        checkpointing: Recompute each block in the backward.
        lora_rank: Of adapters on all linear layers; 0 trains everything.
        is_padded: Whether rows differ in length: masks of length² are then kept, one per block.

    Example:
        >>> tiny = ModelShape(837_376, 837_376, 128, 4, 4, 4, 32, 261, 352)
        >>> activation_bytes(tiny, 8, 64, "32-true") / 2**20, activation_bytes(tiny, 8, 64, "32-true", True) / 2**20
        (21.802734375, 7.017578125)
    """
    num_tokens = num_rows * length
    mask = COMPUTE_BYTES[precision] * num_rows * length**2 if is_padded else 0
    layer = num_tokens * layer_bytes(shape, precision, lora_rank, is_padded) + mask
    if checkpointing:
        held = shape.num_layers * num_tokens * shape.hidden_size * WEIGHT_BYTES[precision] + layer
    else:
        held = shape.num_layers * layer
    return held + num_tokens * _ends_bytes(shape, precision, lora_rank)


def logits_bytes(num_tokens: int, vocab_size: int, max_logits: int | None = MAX_LOGITS) -> int:
    """Logits and what is made of them, in fp32.

    Args:
        num_tokens: Scored at once.
        vocab_size: Of the lm head.
        max_logits: Most logits held, where log-probs are computed in chunks; None: all of them at once, as
            ``model(...).loss`` does.

    Example:
        >>> logits_bytes(4 * 2048, 151_936, max_logits=None) / 2**30, logits_bytes(4 * 2048, 151_936) / 2**30
        (18.546875, 0.25)
    """
    num_logits = num_tokens * vocab_size
    return 4 * LOGIT_COPIES * (num_logits if max_logits is None else min(num_logits, max(max_logits, vocab_size)))


def kv_cache_bytes(shape: ModelShape, num_rows: int, length: int, bytes_per_value: int = 2) -> int:
    """Keys and values of all past tokens while generating (1911.02150): 2 x layers x key-value heads x width.

    Args:
        shape: Of the model.
        num_rows: Completions generated at once.
        length: Tokens of prompt and completion.
        bytes_per_value: 2 in 16-bit precision, also mixed; 4 in fp32.

    Example:
        >>> llama_7b = ModelShape(6_738_415_616, 6_738_415_616, 4096, 32, 32, 32, 128, 32000, 11008)
        >>> kv_cache_bytes(llama_7b, 16, 2048) / 2**30
        16.0
    """
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * num_rows * length * bytes_per_value


def _ends_bytes(shape: ModelShape, precision: Precision, lora_rank: int) -> int:
    """What is kept of one token before the first block and after the last: its id, the last norm, the head's input."""
    norm = 4 * shape.hidden_size + 4 + (0 if lora_rank else WEIGHT_BYTES[precision] * shape.hidden_size)
    return 8 + norm + COMPUTE_BYTES[precision] * shape.hidden_size
