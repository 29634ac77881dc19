"""What held-out rows say of each stage, every number with its interval."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from intervals import auc, bootstrap, wilson, written
from real_measure import Columns, HeldOut
from torch import Tensor


def prompts_of(columns: Columns, file: str) -> list[str]:
    """Return the prompt of every measured row."""
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").split("\n") if line]
    return [rows[int(number)]["prompt"][-1]["content"] for number in columns["row"]]


def share(right: Tensor, groups: Sequence[object]) -> str:
    """Write a share of right rows, with both intervals."""
    drawn = bootstrap(lambda rows: float(right[rows].mean()), groups)
    return f"{written(wilson(float(right.sum()), len(right)))}, over prompts [{drawn[1]:.3f}, {drawn[2]:.3f}]"


def right_of(gaps: Tensor) -> Tensor:
    """Count a positive gap as right, a tie as half."""
    return 0.5 * (gaps.sign() + 1)


def sft(held_out: HeldOut, files: dict[str, str]) -> dict[str, Any]:
    """Say how likely held-out answers are, per token, before and after."""
    groups = held_out.after["row"].tolist()
    report: dict[str, Any] = {"held out": len(groups), "tokens": int(held_out.after["num_tokens"].sum())}
    parts = {"before": held_out.before, "after": held_out.after}
    for name, key, sign in (("nll", "logps", -1), ("token accuracy", "is_top", 1)):
        if key not in held_out.after:
            continue
        for when, columns in parts.items():
            report[f"{name} {when}"] = written(bootstrap(_per_token(sign * columns[key], columns), groups))
        difference = sign * (held_out.after[key] - held_out.before[key])
        report[f"{name}, change"] = written(bootstrap(_per_token(difference, held_out.after), groups))
    return report


def reward(held_out: HeldOut, files: dict[str, str]) -> dict[str, Any]:
    """Say how often the better answer scores higher, and how often it is merely the longer one."""
    after, groups = held_out.after, prompts_of(held_out.after, files["eval"])
    gaps, longer = (
        after["rewards"][:, 0] - after["rewards"][:, 1],
        after["num_tokens"][:, 0] - after["num_tokens"][:, 1],
    )
    report = {"held out": len(gaps), "prompts": len(set(groups)), "accuracy": share(right_of(gaps), groups)}
    both = right_of(gaps) - right_of(longer)
    return report | {
        "longer answer": share(right_of(longer), groups),
        "accuracy above longer's": written(bootstrap(lambda rows: float(both[rows].mean()), groups)),
        "agrees with longer": written(wilson(float(((gaps > 0) == (longer > 0)).sum()), len(gaps))),
        "margin": f"{float(gaps.mean()):.3f}",
    }


def dpo(held_out: HeldOut, files: dict[str, str]) -> dict[str, Any]:
    """Say how often the implicit reward of the better answer is higher, and where the absolute log-probs went."""
    after, groups = held_out.after, prompts_of(held_out.after, files["eval"])
    gaps, longer = (
        after["chosen_rewards"] - after["rejected_rewards"],
        after["num_tokens"][:, 0] - after["num_tokens"][:, 1],
    )
    report: dict[str, Any] = {"held out": len(gaps), "prompts": len(set(groups))}
    report["accuracy"] = share(right_of(gaps), groups)
    report["longer answer"] = share(right_of(longer), groups)
    report["likelier under the start policy"] = share(
        right_of(after["ref_logps"][:, 0] - after["ref_logps"][:, 1]), groups
    )
    report["margin"] = written(bootstrap(lambda rows: float(gaps[rows].mean()), groups), 4)
    for place, name in enumerate(("chosen", "rejected")):
        before, moved = after["ref_logps"][:, place], after["logps"][:, place]
        report[f"log-prob of {name}"] = f"{float(before.mean()):.2f} before, {float(moved.mean()):.2f} after"
    return report


def outcome(held_out: HeldOut, files: dict[str, str]) -> dict[str, Any]:
    """Say how well right solutions are told from wrong ones, of other questions than those trained on."""
    after, groups = held_out.after, prompts_of(held_out.after, files["eval"])
    is_good, logits = after["label"] > 0.5, after["logits"]
    right = ((logits > 0) == is_good).double()
    major = torch.full_like(right, float(is_good.double().mean() > 0.5))
    return {
        "held out": len(right),
        "questions": len(set(groups)),
        "accuracy": share(right, groups),
        "majority class": share((major == is_good.double()).double(), groups),
        "AUC": written(bootstrap(lambda rows: auc(logits[rows], is_good[rows]), groups, 500)),
        "AUC of shortness": written(
            bootstrap(lambda rows: auc(-after["num_tokens"][rows], is_good[rows]), groups, 500)
        ),
    }


def _per_token(sums: Tensor, columns: Columns) -> Callable[[Tensor], float]:
    return lambda rows: float(sums[rows].sum() / columns["num_tokens"][rows].sum())


REPORTS = {"sft": sft, "reward": reward, "dpo": dpo, "outcome": outcome}
