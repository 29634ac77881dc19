"""``python -m lit_rlhf chat``: talk to a model, or to what a run has just trained."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence

from transformers.utils import logging

from lit_rlhf.backbone import Backbone
from lit_rlhf.data.chat import render_prompt
from lit_rlhf.rollout import NativeSampler, NoiseKey, Prompt, Sampling


def main(args: Sequence[str]) -> None:
    """Answer each line of the standard input by itself.

    Args:
        args: ``chat``, then a model and flags.
    """
    parser = ArgumentParser("python -m lit_rlhf chat", description="Each line is a prompt of its own; end with Ctrl-D.")
    parser.add_argument("model", help="a run directory, builtin:tiny, a local folder or a hub id")
    parser.add_argument("--raw", action="store_true", help="show prompt and answer as the model sees them")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="longest answer (%(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token (%(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="another seed, other answers (%(default)s)")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    options = parser.parse_args(args[1:])

    logging.disable_progress_bar()
    sampling = Sampling(temperature=options.temperature, max_new_tokens=options.max_new_tokens)
    backbone = Backbone(options.model)
    backbone.load()
    tokenizer, sampler = backbone.tokenizer, NativeSampler(backbone)
    for turn, text in enumerate(_lines()):
        message = text if tokenizer.chat_template is None else [{"role": "user", "content": text}]
        prompt = Prompt(prompt_id=turn, ids=render_prompt(tokenizer, message, where=f"line {turn + 1}"))
        [answer] = sampler.generate([prompt], 1, sampling, NoiseKey(options.seed, "panel", phase=0))
        if options.raw:
            print(tokenizer.decode(answer.prompt_ids + answer.ids))
        else:
            print(tokenizer.decode(answer.ids, skip_special_tokens=True))


def _lines() -> Iterator[str]:
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if text.strip():
            yield text
