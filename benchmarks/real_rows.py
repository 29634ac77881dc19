"""Public data as the rows that the toolkit reads: prompts are conversations, and no prompt is on both sides.

==========  ===================================================  =======================================
function    file                                                 source
==========  ===================================================  =======================================
`tasks`     Self-Instruct's ``seed_tasks.jsonl`` and             github.com/yizhongw/self-instruct
            ``user_oriented_instructions.jsonl``
`pairs`     PandaLM's ``testset-v1.json``                        github.com/WeOpenML/PandaLM
`verdicts`  GSM8K's ``example_model_solutions.jsonl``            github.com/openai/grade-school-math
==========  ===================================================  =======================================
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

Row = dict[str, Any]


def tasks(path: Path) -> list[Row]:
    """Read human-written instructions with their answers."""
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    return [
        {"prompt": _user(row["instruction"], instance["input"]), "completion": instance["output"]}
        for row in rows
        for instance in row["instances"]
        if instance["output"].strip()
    ]


def pairs(path: Path) -> list[Row]:
    """Read pairs of answers that most of three annotators order the same way; ties are left out."""
    made = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        votes = Counter(row[f"annotator{number}"] for number in (1, 2, 3))
        winner, num_votes = votes.most_common(1)[0]
        answers = [row["response1"], row["response2"]]
        usable = all(isinstance(answer, str) and answer.strip() for answer in answers) and answers[0] != answers[1]
        if winner in (1, 2) and num_votes > 1 and usable:
            chosen, rejected = answers if winner == 1 else answers[::-1]
            made.append({"prompt": _user(row["instruction"], row["input"]), "chosen": chosen, "rejected": rejected})
    return made


def verdicts(path: Path) -> list[Row]:
    """Read four models' solutions of each question, and whether they are right."""
    made = []
    for line in path.open(encoding="utf-8"):
        row = json.loads(line)
        for answer in (value for value in row.values() if isinstance(value, dict)):
            if answer["solution"].strip():
                prompt = _user(row["question"], "")
                made.append({"prompt": prompt, "completion": answer["solution"], "label": answer["is_correct"]})
    return made


def num_tokens(row: Row, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the length of a row's longest sequence."""
    answers = [row[name] for name in ("completion", "chosen", "rejected") if name in row]
    turns = [[*row["prompt"], {"role": "assistant", "content": answer}] for answer in answers]
    return max(len(tokenizer.apply_chat_template(turn, return_dict=False)) for turn in turns)


def split(rows: list[Row], num_held_out: int, num_train: int | None, seed: int) -> tuple[list[Row], list[Row]]:
    """Draw prompts to hold out, with all their rows, until there are enough rows; then rows to train on.

    Args:
        rows: With a ``prompt``.
        num_held_out: At least so many rows are held out.
        num_train: At most so many of the others are trained on; None: all.
        seed: Decides both draws.

    Returns:
        The rows to train on, and those held out.
    """
    rng = random.Random(seed)
    prompts = sorted({_key(row) for row in rows})
    rng.shuffle(prompts)
    counts = Counter(_key(row) for row in rows)
    aside: set[str] = set()
    for prompt in prompts:
        if sum(counts[one] for one in aside) >= num_held_out:
            break
        aside.add(prompt)
    train = [row for row in rows if _key(row) not in aside]
    rng.shuffle(train)
    return train[:num_train], [row for row in rows if _key(row) in aside]


def write(rows: list[Row], path: Path) -> str:
    """Write rows as JSON lines; return the path as a setting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _user(instruction: str, text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{instruction}\n\n{text}" if text.strip() else instruction}]


def _key(row: Row) -> str:
    content: str = row["prompt"][-1]["content"]
    return content
