"""A tokenizer of single letters, for projects that have never heard of lit_rlhf."""

from typing import Any

VOCABULARY = "_.abcdefghijklmnopqrstuvwxyz "  # "_" pads, "." ends


def letter_tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(VOCABULARY)}, unk_token="_"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="_", eos_token=".")
