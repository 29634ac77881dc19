"""What ORPO and SimPO are on completions of thousands of tokens, and what ORPO is of sums, or of bf16 log-probs.

    python benchmarks/long_completions.py                      # the embedded model
    python benchmarks/long_completions.py smollm2-135m

The chosen completion is 2,048 tokens of a public-domain text (Verne, from reasoning-gym); the rejected one the same
text with half the words of every twenty sorted. Then the other way round.
"""

import argparse
import importlib.resources
import random

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers.utils import logging

from lit_rlhf.algorithms import ORPO, SimPO
from lit_rlhf.algorithms.pairs import Preference
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.functional.preference_losses import log_odds_ratio


def texts(num_words: int) -> tuple[str, str]:
    """Return a text and a broken copy of it."""
    book = importlib.resources.files("reasoning_gym") / "data" / "in_the_year_2889.txt"
    words = book.read_text(encoding="utf-8").split()[:num_words]
    rng, broken = random.Random(0), list(words)
    for first in range(0, len(words), 20):
        places = rng.sample(range(first, min(first + 20, len(words))), k=min(10, len(words) - first))
        for place, word in zip(places, sorted(words[place] for place in places), strict=True):
            broken[place] = word
    return " ".join(words), " ".join(broken)


def make_pair(module: Preference, num_tokens: int, *, swap: bool) -> Example:
    """Make a pair of that many tokens each; ``swap`` prefers the broken text."""
    tokenizer = module.backbone.tokenizer
    prompt, samples = tokenizer("Write on.")["input_ids"], []
    for text in texts(num_tokens):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:num_tokens]
        samples.append(Sample([*prompt, *ids], [False] * len(prompt) + [True] * len(ids), len(prompt)))
    return Example(0, samples[::-1] if swap else samples)


def of_sums(logps: Tensor) -> float:
    """Return ORPO's odds term, without its weight, as it is of log-probs summed over tokens."""
    sums = logps.sum(-1)
    return float(-logsigmoid(log_odds_ratio(sums[0::2], sums[1::2])))


def measure(module: Preference, example: Example) -> dict[str, float]:
    """Return the loss's parts, ORPO's term of sums, the difference of means in fp32 and bf16, and the gradient."""
    batch = Batch(parts=[[example]], num_examples=1, num_tokens=example.num_tokens, closes_window=True)
    module.zero_grad()
    share, shown = module.window_share(collate([example], module.backbone.pad_id), batch)
    share.backward()
    logps, counts = shown["logps"], shown["completion_mask"].sum(-1)
    means, coarse = logps.sum(-1) / counts, logps.bfloat16().sum(-1) / counts
    grads = [parameter.grad.norm() for parameter in module.parameters() if parameter.grad is not None]
    return {
        "tokens": float(counts.float().mean()),
        "NLL": float(-means[0]),
        "term": float(shown["losses"]) / (module.beta if isinstance(module, ORPO) else 1.0),
        "term of sums": of_sums(logps),
        "difference": float(means[0] - means[1]),
        "in bf16": float(coarse[0] - coarse[1]),
        "gradient": float(torch.stack(grads).norm()),
    }


def main() -> None:
    """Measure and print a table; ORPO's terms are without their weight λ, the class's beta."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="builtin:tiny")
    parser.add_argument("--tokens", type=int, default=2048)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    print(
        "| loss | chosen | tokens | NLL | its term | ORPO's of sums | difference of means | in bf16 | gradient norm |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in (ORPO, SimPO):
        module = kind(model=options.model)
        module.backbone.load()
        for swap in (False, True):
            found = measure(module, make_pair(module, options.tokens, swap=swap))
            cells = [f"{value:.4g}" for value in found.values()]
            print(f"| `{kind.__name__}` | {'broken' if swap else 'real'} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
