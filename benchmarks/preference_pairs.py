"""Make on-policy preference pairs: sample the embedded model, let the checker say which samples are right.

    python benchmarks/preference_pairs.py pairs.jsonl --prompts 768

Each prompt gives at most one pair: its first right and its first wrong sample of eight.
"""

import argparse
import json
from pathlib import Path

import torch

from lit_rlhf.backbone import Backbone
from lit_rlhf.data import PromptData
from lit_rlhf.rewards import RewardSet
from lit_rlhf.rollout import NativeSampler, NoiseKey, Sampling
from lit_rlhf.rollout.scored import Row, Scorer


def pairs(rows: list[Row], scores: list[float], texts: list[str], group_size: int) -> list[Row]:
    """Pair the first right and the first wrong sample of each prompt that has both."""
    made = []
    for place, row in enumerate(rows):
        group = list(zip(scores, texts, strict=True))[place * group_size : (place + 1) * group_size]
        right = [text for score, text in group if score >= 0.99]
        wrong = [text for score, text in group if score < 0.99]
        if right and wrong:
            turns = [[{"role": "assistant", "content": text}] for text in (right[0], wrong[0])]
            made.append({"prompt": row["prompt"], "chosen": turns[0], "rejected": turns[1]})
    return made


def main() -> None:
    """Sample, check, pair and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--prompts", type=int, default=768)
    parser.add_argument("--group-size", type=int, default=8)
    options = parser.parse_args()
    backbone = Backbone(options.model)
    backbone.load()
    data = PromptData(limit=options.prompts)
    data.setup("fit")
    scorer = Scorer(
        sampler=NativeSampler(backbone),
        rewards=RewardSet(["exact_match"]),
        tokenizer=backbone.tokenizer,
        sampling=Sampling(max_new_tokens=12),
    )
    with torch.no_grad():
        scored = scorer(data.train_rows, range(len(data.train_rows)), options.group_size, NoiseKey(0, "train", 0))
    made = pairs(data.train_rows, scored.rewards.tolist(), scored.texts, options.group_size)
    options.out.write_text("".join(json.dumps(row) + "\n" for row in made))
    print(f"{len(made)} pairs from {len(scored)} samples of {len(data.train_rows)} prompts")


if __name__ == "__main__":
    main()
