"""Make the embedded model from random weights: ``python -m lit_rlhf.builtin.train_tiny OUT_DIR [--seed N]``.

A byte-level Llama of 0.84 million parameters learns, from questions and answers, two side skills completely (the order
of the letters, a table of made-up facts) and one skill by half: spelling a word backwards. Its teacher there is
careless: one letter in ten of the answers is a random one. So the model knows more than it says: the shipped one
(seed 0) is right for 0.40 of the held-out words when sampled at temperature 1, and for 0.87 when decoded greedily. What
reinforcement learning gains from here is therefore mostly certainty, and a smaller part new skill; judge a claim of new
skill by greedy decoding. Training stops when measured held-out pass@1 lies inside a window, which the careless teacher
makes easy to hit. One thread, so that a seed gives one model.
"""

import argparse
import json
import platform
import random
import time
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from lit_rlhf.builtin.byte_tokenizer import build_tokenizer
from lit_rlhf.builtin.measure import Example, answer_logps, encode, measure_choice, measure_pass_at_1
from lit_rlhf.builtin.sentinel_items import letter_order, made_up_facts
from lit_rlhf.builtin.tasks import load_task

CONTEXT_LENGTH = 4096
BATCH_SIZE = 32
WARMUP_STEPS = 50
MAX_STEPS = 2_500
SIDE_SKILL_GOAL = 0.98
PASS_AT_1_WINDOW = (0.38, 0.45)
MISSPELLED_SHARE = 0.1


def build_model(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """Make the model with random weights (seed torch first).

    Args:
        tokenizer: Gives the vocabulary size and the special ids.

    Returns:
        A Llama of 0.84 million parameters in fp32.
    """
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=352,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        dtype="float32",
        **ids,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **ids)
    return model


class Lessons:
    """What the model learns from and is measured on.

    Args:
        tokenizer: The model's tokenizer.
        seed: Seed of the mixture.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self.tokenizer = tokenizer
        self.rng = random.Random(seed)
        self.sentinels = {"letter_order": letter_order(), "made_up_facts": made_up_facts()}
        self.side_skills = [
            [encode(tokenizer, item["question"], item["options"][item["answer"]]) for item in items]
            for items in self.sentinels.values()
        ]
        self.words = load_task("reverse_words", "train")
        self.held_out_words = load_task("reverse_words", "eval")

    def draw_batch(self, reversal_share: float) -> list[Example]:
        """Draw each row from reversal with the given probability, else from one of the two side skills."""
        batch = []
        for _ in range(BATCH_SIZE):
            if self.rng.random() < reversal_share:
                row = self.rng.choice(self.words)
                batch.append(encode(self.tokenizer, row["prompt"], self._misspell(row["answer"])))
            else:
                batch.append(self.rng.choice(self.rng.choice(self.side_skills)))
        return batch

    def _misspell(self, word: str) -> str:
        letters = [self.rng.choice(ascii_lowercase) if self.rng.random() < MISSPELLED_SHARE else a for a in word]
        return "".join(letters)

    def measure(self, model: LlamaForCausalLM) -> dict[str, Any]:
        """Measure held-out reversal and both side skills."""
        model.eval()
        numbers = measure_pass_at_1(model, self.tokenizer, self.held_out_words)._asdict()
        for name, items in self.sentinels.items():
            numbers[name] = measure_choice(model, self.tokenizer, items)
        model.train()
        return numbers


def train(model: LlamaForCausalLM, lessons: Lessons) -> dict[str, Any]:
    """Train until reversal is inside its window and the side skills are known.

    Args:
        model: A model with random weights; trained in place.
        lessons: The mixture and the measurements.

    Returns:
        The number of steps and the last measurements.

    Raises:
        RuntimeError: The window was passed over, or not reached in ``MAX_STEPS`` steps; another seed may do.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)
    # First the side skills with a little reversal, then mostly reversal, then gently, with an eye on the window.
    learning_rate, reversal_share, measure_every = 2e-3, 0.1, 50
    for step in range(1, MAX_STEPS + 1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, step / WARMUP_STEPS)
        logps, answer_mask = answer_logps(model, lessons.draw_batch(reversal_share))
        loss = -logps.sum() / answer_mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % measure_every:
            continue
        numbers = lessons.measure(model)
        side_skills = [numbers[name] for name in lessons.sentinels]
        print(f"step {step}: loss {loss.item():.3f}, pass@1 {numbers['pass_at_1']:.3f}, side skills {side_skills}")
        if numbers["pass_at_1"] > PASS_AT_1_WINDOW[1]:
            break
        if numbers["pass_at_1"] >= PASS_AT_1_WINDOW[0] and min(side_skills) >= SIDE_SKILL_GOAL:
            return {"steps": step, **numbers}
        if min(side_skills) >= SIDE_SKILL_GOAL:
            reversal_share = 0.7
        if numbers["pass_at_1"] > 0.2:
            learning_rate, measure_every = 1e-3, 20
    where = f"step {step}: pass@1 {numbers['pass_at_1']:.3f} is outside {PASS_AT_1_WINDOW}"
    raise RuntimeError(f"{where}, or a side skill of {side_skills} is below {SIDE_SKILL_GOAL}; try another seed")


def main() -> None:
    """Train, measure, and write the model's folder with a ``training.json`` that says how it came about."""
    parser = argparse.ArgumentParser(description="Make the embedded tiny model from random weights.")
    parser.add_argument("out_dir", type=Path, help="the Hugging Face folder to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and of the mixture")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    started = time.process_time()
    tokenizer = build_tokenizer(CONTEXT_LENGTH)
    model = build_model(tokenizer).train()
    numbers = train(model, Lessons(tokenizer, args.seed))
    model.eval().save_pretrained(args.out_dir)
    tokenizer.save_pretrained(args.out_dir)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    record = {"seed": args.seed, **numbers, "num_parameters": model.num_parameters(), "versions": versions}
    (args.out_dir / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2), f"\n{time.process_time() - started:.0f} CPU seconds")


if __name__ == "__main__":
    main()
