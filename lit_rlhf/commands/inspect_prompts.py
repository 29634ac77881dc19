"""What an RL run would ask its model, token by token, and what its reward functions say to known answers."""

from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from lit_rlhf.algorithms.online import OnlineAlgorithm
from lit_rlhf.algorithms.showing import reward_probes
from lit_rlhf.data.preflight import show_sample
from lit_rlhf.data.prompts import PromptData
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Sample
from lit_rlhf.data.sources import Row
from lit_rlhf.rollout.scored import tokenise
from lit_rlhf_callbacks.checks.reward_function import check_reward_function
from lit_rlhf_callbacks.symptoms.finding import CheckResult

MAX_MEASURED = 2000  # prompts whose tokens are counted


def report(data: PromptData, model: OnlineAlgorithm, num_shown: int) -> None:
    """Print counts, prompts as the model is given them, and the reward functions' answers; warn where one is wrong.

    Args:
        data: Set up.
        model: Whose tokenizer renders, and whose reward functions are asked.
        num_shown: How many prompts to spell out.

    Raises:
        UserError: As at the start of a run.
    """
    backbone, console = model.backbone, Console()
    model.check_data(data)
    rows = data.train_rows[: max(MAX_MEASURED, num_shown)]
    prompts = [prompt.ids for prompt in tokenise(backbone.tokenizer, rows)]
    checks = [
        check_reward_function(probe["name"], probe["call"], probe["cases"], judges=probe["judges"])
        for probe in reward_probes(model.reward_set, data.train_rows)
    ]
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in {**_facts(data, model, prompts), **_reward_facts(checks, model)}.items():
        table.add_row(name, escape(value))
    console.print(table)
    renderer = Renderer(backbone.tokenizer)
    for row, ids in list(zip(rows, prompts, strict=True))[:num_shown]:
        prompt = show_sample(Sample(ids, [False] * len(ids), len(ids)), renderer)
        console.print(Panel(prompt, title=escape(_caption(row)), title_align="left"))
    for text in [*_prompt_warnings(data, renderer, prompts), *_reward_warnings(checks)]:
        console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)


def _facts(data: PromptData, model: OnlineAlgorithm, prompts: Sequence[Sequence[int]]) -> dict[str, str]:
    lengths, tokenizer = [len(ids) for ids in prompts], model.backbone.tokenizer
    room = min(model.sampling.max_new_tokens, model.backbone.context_length - max(lengths))
    measured = "" if len(prompts) == len(data.train_rows) else f" (the first {len(prompts)})"
    columns = sorted({name for row in data.train_rows for name in row} - {"prompt", "prompt_id"})
    bos = tokenizer.bos_token_id
    first = sum(ids[0] == bos for ids in prompts)
    return {
        "prompts": f"{len(data.train_rows)} to train on, {len(data.eval_rows)} held out",
        "columns for rewards": ", ".join(columns) or "none",
        "tokens per prompt": f"min {min(lengths)}, median {median(lengths):g}, max {max(lengths)}{measured}",
        "tokens per completion": f"at most {room}, after the longest of these",
        "chat template": "none; prompts are plain text" if tokenizer.chat_template is None else "the model's own",
        "BOS": "the tokenizer has none" if bos is None else f"{tokenizer.bos_token} first in {first} of {len(prompts)}",
        "phase": f"{data.prompts_per_phase} prompts × {model.group_size} completions",
    }


def _reward_facts(checks: Sequence[CheckResult], model: OnlineAlgorithm) -> dict[str, str]:
    if not checks:
        names = ", ".join(reward.name for reward in model.reward_set.rewards)
        return {"rewards": f"{names} (not asked: no column 'answer' to make a known answer from)"}
    return {f"reward {place}": check.summary for place, check in enumerate(checks, start=1)}


def _caption(row: Row) -> str:
    others = [f"{name} {str(value)[:60]!r}" for name, value in row.items() if name not in ("prompt", "prompt_id")]
    return ", ".join([f"prompt {row['prompt_id']}", *others])


def _prompt_warnings(data: PromptData, renderer: Renderer, prompts: Sequence[Sequence[int]]) -> list[str]:
    warnings = []
    shared = data.data_facts()["num_eval_in_train"]
    if shared:
        warnings.append(f"data: {shared} of {len(data.eval_rows)} held-out prompts are trained on, too")
    doubled = sum(list(ids[:2]) == [renderer.bos_id] * 2 for ids in prompts) if renderer.bos_id is not None else 0
    if doubled:
        name = renderer.tokenizer.bos_token
        warnings.append(f"data: {doubled} of {len(prompts)} prompts begin with '{name}' twice; remove it from the text")
    ended = sum(ids[-1] == renderer.eos_id for ids in prompts)
    if ended:
        warnings.append(
            f"data: {ended} of {len(prompts)} prompts end with the stop token, so the model is asked to go on after it"
        )
    return warnings


def _reward_warnings(checks: Sequence[CheckResult]) -> list[str]:
    return [f"model.rewards: {check.summary}" for check in checks if check.status == "failed"]
