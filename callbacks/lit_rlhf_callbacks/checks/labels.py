"""Which tokens are learned: all, none, shifted by one, and the one that ends an answer."""

from collections.abc import Collection

import torch
from torch import Tensor

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.checks.tokens import Tokens, real_mask
from lit_rlhf_callbacks.scoring import scored_mask
from lit_rlhf_callbacks.symptoms.finding import CheckResult, Severity

ENOUGH_ROWS = 4  # that all show the same thing, before it is more than chance


def check_supervised_tokens(tokens: Tokens, *, whole_rows_meant: bool | None = None, step: int = 0) -> CheckResult:
    """Count the tokens that are learned from in each row: some, and not all.

    Args:
        tokens: ``input_ids`` and ``completion_mask`` or ``labels``, ``[B, T]``; ``attention_mask`` if there are pads.
        whole_rows_meant: Whether learning every token, prompts too, is intended; None: not known.
        step: Updates made.
    """
    name, mask = "supervised_tokens", scored_mask(tokens)
    if mask is None:
        return unknown(name, step, "no completion_mask or labels in tokens")
    counts, lengths = mask.sum(-1), real_mask(tokens).sum(-1)
    empty, full = int((counts == 0).sum()), int((counts >= lengths - 1).sum())
    rows = len(counts)
    numbers = {"rows": rows, "rows_without": empty, "rows_whole": full, "mean_tokens": float(counts.float().mean())}
    if empty == rows:
        text = f"no token counts in any of {rows} rows, so nothing is learned"
        return failed(name, step, "labels_masked", "all_masked", text, numbers)
    if empty > rows / 2:
        text = f"no token counts in {empty} of {rows} rows, so nothing is learned from them"
        return failed(name, step, "labels_masked", "all_masked", text, numbers, "warn")
    if full == rows >= ENOUGH_ROWS and whole_rows_meant is not True:
        text = f"every token counts in all {rows} rows, so prompts are learned like answers"
        severity: Severity = "info" if whole_rows_meant is None else "warn"
        return failed(name, step, "labels_masked", "none_masked", text, numbers, severity)
    return passed(name, step, f"{numbers['mean_tokens']:.1f} tokens count per row, in {rows - empty} rows", numbers)


def check_label_alignment(tokens: Tokens, stop_ids: Collection[int] = (), *, step: int = 0) -> CheckResult:
    """Find labels or a mask that are shifted by one token.

    Labels are not shifted by whoever makes them: ``labels[b, t]`` is ``input_ids[b, t]`` or -100. A mask has moved
    right when it covers pads in most rows, and left when the last real token is a stop token that does not count, the
    one before it does, and the first token that counts is the same in every row, as the end of a prompt is.

    Args:
        tokens: As of `check_supervised_tokens`.
        stop_ids: Tokens that end an answer; without them a mask that moved left cannot be told.
        step: Updates made.
    """
    name, mask = "label_alignment", scored_mask(tokens)
    if mask is None or not mask.any():
        return unknown(name, step, "no token counts" if mask is not None else "no completion_mask or labels in tokens")
    ids, real = tokens["input_ids"], real_mask(tokens)
    measured: dict[str, float] = {}
    if "labels" in tokens:
        measured["labels_equal_inputs"] = _share(tokens["labels"] == ids, mask)
        if measured["labels_equal_inputs"] < 0.9:
            next_ids = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -1)], dim=1)
            measured["labels_equal_next_inputs"] = _share(tokens["labels"] == next_ids, mask)
            text = (
                f"{1 - measured['labels_equal_inputs']:.0%} of the labels are not the token at their place; "
                f"{measured['labels_equal_next_inputs']:.0%} are the next one"
            )
            return failed(name, step, "labels_masked", "off_by_one", text, measured)
    rows = mask.any(-1)
    on_pads = (mask & ~real).any(-1)
    measured["rows_on_pads"] = float(on_pads.sum())
    if on_pads.sum() > rows.sum() / 2 or (mask & ~real).sum() > mask.sum() / 2:
        text = f"the mask covers pads in {int(on_pads.sum())} of {len(rows)} rows: it is shifted to the right"
        return failed(name, step, "labels_masked", "off_by_one", text, measured)
    measured["rows_shifted_left"] = float(_shifted_left(ids, mask, real, stop_ids))
    if measured["rows_shifted_left"] == int(rows.sum()) >= ENOUGH_ROWS:
        text = "in every row the mask begins with the same token and ends one before the stop token: it is shifted left"
        return failed(name, step, "labels_masked", "off_by_one", text, measured)
    return passed(name, step, "what counts is where it should be, as far as can be told", measured)


def check_stop_token(
    tokens: Tokens, stop_ids: Collection[int], *, severity: Severity = "critical", step: int = 0
) -> CheckResult:
    """Look for a stop token among the tokens that are learned: without any the model will not learn to stop.

    Args:
        tokens: As of `check_supervised_tokens`.
        stop_ids: Tokens that end an answer when the model generates.
        severity: Of a failure; where stopping is taught elsewhere it is less grave.
        step: Updates made.
    """
    name, mask = "stop_token", scored_mask(tokens)
    if mask is None or not stop_ids:
        return unknown(name, step, "no stop_ids" if mask is not None else "no completion_mask or labels in tokens")
    stops = torch.isin(tokens["input_ids"], torch.tensor(sorted(stop_ids), device=mask.device))
    rows, taught = mask.any(-1), (stops & mask).any(-1)
    present = (stops & real_mask(tokens)).any(-1) & rows
    numbers = {"rows": int(rows.sum()), "rows_that_teach_it": int(taught.sum()), "rows_with_it": int(present.sum())}
    if numbers["rows"] < ENOUGH_ROWS:
        return unknown(name, step, f"only {numbers['rows']} rows in the first window")
    if not numbers["rows_that_teach_it"]:
        where = "it stands there but does not count" if numbers["rows_with_it"] else "it is not in the text"
        text = f"no stop token is learned in any of {numbers['rows']} rows ({where}), so the model will not stop"
        return failed(name, step, "stop_token_untrained", "eos_not_in_labels", text, numbers, severity)
    return passed(name, step, f"{numbers['rows_that_teach_it']} of {numbers['rows']} rows teach a stop token", numbers)


def check_double_bos(tokens: Tokens, *, bos_id: int | None = None, step: int = 0) -> CheckResult:
    """Look for two BOS tokens at the start of rows: the template adds one and the tokenizer another.

    Args:
        tokens: ``input_ids`` ``[B, T]``, ``attention_mask`` if there are pads.
        bos_id: None: two equal first tokens in every row are taken for it.
        step: Updates made.
    """
    name, ids, real = "double_bos", tokens["input_ids"], real_mask(tokens)
    long_enough = real.sum(-1) > 1
    if long_enough.sum() < ENOUGH_ROWS:
        return unknown(name, step, f"only {int(long_enough.sum())} rows in the first window")
    first = real.int().argmax(-1)
    places = torch.arange(len(ids), device=ids.device)
    one, two = ids[places, first][long_enough], ids[places, (first + 1).clamp(max=ids.shape[1] - 1)][long_enough]
    twice = (one == two) & (one == (bos_id if bos_id is not None else one[0]))
    numbers = {"rows": len(twice), "rows_with_two": int(twice.sum())}
    if numbers["rows_with_two"] == numbers["rows"]:
        text = (
            f"all {len(twice)} rows begin with token {int(one[0])} twice: the template and the tokenizer each add one"
        )
        return failed(name, step, "template_mismatch", "double_bos", text, numbers, "warn")
    return passed(name, step, f"{numbers['rows_with_two']} of {numbers['rows']} rows begin with two equal tokens")


def _share(condition: Tensor, mask: Tensor) -> float:
    return float(condition[mask].float().mean())


def _shifted_left(ids: Tensor, mask: Tensor, real: Tensor, stop_ids: Collection[int]) -> int:
    """Count rows that end as if their mask had moved left; none, if they do not all begin to count alike."""
    rows = mask.any(-1)
    if not stop_ids or not rows.any():
        return 0
    width = ids.shape[1]
    last = width - 1 - real.flip(-1).int().argmax(-1)
    places = torch.arange(len(ids), device=ids.device)
    first_ids = ids[places, mask.int().argmax(-1)][rows]
    if not bool((first_ids == first_ids[0]).all()):
        return 0
    ends = torch.isin(ids[places, last], torch.tensor(sorted(stop_ids), device=ids.device))
    return int((rows & ends & ~mask[places, last] & mask[places, (last - 1).clamp(min=0)]).sum())
