"""How far log-probs in bf16, and weights rounded to bf16, turn a gradient, on pairs of a few and of many tokens.

python benchmarks/precision_gradients.py pairs.jsonl
"""

import argparse
from unittest.mock import patch

import torch
from coarse_numbers import coarse_scores
from lightning.pytorch import seed_everything
from long_completions import make_pair
from torch import Tensor
from transformers.utils import logging

from lit_rlhf import algorithms
from lit_rlhf.algorithms.pairs import Preference
from lit_rlhf.backbone import scoring
from lit_rlhf.data import PreferenceData
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example


def gradient(module: Preference, examples: list[Example]) -> Tensor:
    """Return the gradient of a window's loss as one vector."""
    num_tokens = sum(example.num_tokens for example in examples)
    batch = Batch(parts=[examples], num_examples=len(examples), num_tokens=num_tokens, closes_window=True)
    module.zero_grad()
    share, _ = module.window_share(collate(examples, module.backbone.pad_id), batch)
    share.backward()
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]).double()


def compare(exact: Tensor, other: Tensor) -> str:
    """Write the cosine of two gradients and the ratio of their norms."""
    cosine = float(torch.nn.functional.cosine_similarity(exact, other, dim=0))
    return f"{cosine:.5f}, {float(other.norm() / exact.norm()):.4f}"


def main() -> None:
    """Print a table: cosine with the fp32 gradient, and its norm relative to that one's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--losses", nargs="+", default=["ORPO", "SimPO"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    seed_everything(42, verbose=False)
    print("| loss | pairs | bf16 log-probs | bf16 weights |\n|---|---|---|---|")
    for kind in (getattr(algorithms, name) for name in options.losses):
        module, rounded = kind(model=options.model), kind(model=options.model)
        for each in (module, rounded):
            each.backbone.load()
        rounded.backbone.bfloat16().float()
        data = PreferenceData(train=options.pairs, num_eval=1, limit=32)
        data.setup("fit")
        data.tokenise(module.backbone.tokenizer)
        short, long = list(data.train_examples), [make_pair(module, 2048, swap=False)]
        for name, examples in (("32 short", short), ("1 of 2,048 tokens", long)):
            exact = gradient(module, examples)
            with patch.object(scoring, "score_hidden", coarse_scores):
                coarse = gradient(module, examples)
            cells = [compare(exact, coarse), compare(exact, gradient(rounded, examples))]
            print(f"| `{kind.__name__}` | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
