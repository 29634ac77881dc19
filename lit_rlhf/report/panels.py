"""The same prompts at several updates, side by side."""

from collections import Counter
from collections.abc import Sequence

from lit_rlhf.report.numbers import evenly, write
from lit_rlhf.report.read import Record, Run
from lit_rlhf.report.text import escape

NUM_PROMPTS, NUM_EVENTS = 8, 5
SHOWN, KEPT = 320, 4000  # characters of a text: at once, and when opened


def panels_section(runs: Sequence[Run]) -> str:
    """Show samples of each run: a block per prompt, in it a column per event."""
    parts = []
    for run in runs:
        heading = f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else ""
        samples = run.lines.get("samples", [])
        parts.append(
            heading + (_panels(samples) if samples else "<p>No samples; <code>SamplePanel</code> takes them.</p>")
        )
    return "".join(parts)


def _panels(samples: Sequence[Record]) -> str:
    by_place = {(_prompt(sample), _step(sample)): sample for sample in reversed(samples)}  # the first of several
    seen = Counter(prompt for prompt, _ in by_place)
    order = list(dict.fromkeys(map(_prompt, samples)))
    prompts = sorted(order, key=lambda prompt: -seen[prompt])[:NUM_PROMPTS]
    steps = sorted({_step(sample) for sample in samples})
    steps = [steps[place] for place in evenly(len(steps), NUM_EVENTS)]
    blocks = []
    for prompt in prompts:
        cells = [_cell(step, by_place[prompt, step]) for step in steps if (prompt, step) in by_place]
        if cells:
            blocks.append(
                f'<section class="prompt"><h4>prompt {escape(prompt[0])}</h4>{_text(prompt[1])}'
                f'<div class="events">{"".join(cells)}</div></section>'
            )
    num_steps = len({_step(sample) for sample in samples})
    told = f"{len(blocks)} of {len(order)} prompts at {len(steps)} of {num_steps} updates; all are in samples.jsonl."
    return f'{"".join(blocks)}<p class="quiet">{told}</p>'


def _cell(step: int, sample: Record) -> str:
    rewards = sample.get("rewards")
    scores = [
        f"<b>{escape(name)} {write(float(value)) if isinstance(value, int | float) else '–'}</b>"
        for name, value in (rewards if isinstance(rewards, dict) else {}).items()
    ]
    tokens = [f"{sample['num_tokens']} tokens"] if isinstance(sample.get("num_tokens"), int) else []
    finish = {"stop": "stopped", "length": "cut by the limit"}.get(sample.get("finish", ""), sample.get("finish"))
    facts = " · ".join([*scores, *(escape(each) for each in [*tokens, finish] if each)])
    return (
        f'<div class="event"><p><span class="step">update {step}</span></p>'
        f'{_text(sample.get("completion", ""))}<p class="quiet">{facts}</p></div>'
    )


def _text(value: object) -> str:
    text = str(value)
    if len(text) <= SHOWN:
        return f'<pre dir="auto">{escape(text)}</pre>'
    more = f" … and {len(text) - KEPT:,} characters more" if len(text) > KEPT else ""
    return (
        f'<details class="long"><summary><pre dir="auto">{escape(text[:SHOWN])}…</pre>'
        f'<span>all {len(text):,} characters</span></summary><pre dir="auto">{escape(text[SHOWN:KEPT])}{more}</pre>'
        "</details>"
    )


def _prompt(sample: Record) -> tuple[str, str]:
    return str(sample.get("prompt_id", "?")), str(sample.get("prompt", ""))


def _step(sample: Record) -> int:
    step = sample.get("step")
    return step if isinstance(step, int) else 0
