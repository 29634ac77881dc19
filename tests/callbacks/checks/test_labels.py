"""Masks made by hand: what is right passes, and each way to get it wrong is told from the others."""

import pytest
import torch

from lit_rlhf_callbacks.checks.labels import (
    check_double_bos,
    check_label_alignment,
    check_stop_token,
    check_supervised_tokens,
)

BOS, HEADER, STOP = 1, 2, 3


@pytest.fixture
def tokens():
    """Six rows: BOS, 2 to 3 prompt tokens, a header, 2 to 4 answer tokens, the stop token, pads."""
    ids, mask = torch.zeros(6, 12, dtype=torch.long), torch.zeros(6, 12, dtype=torch.bool)
    for row in range(6):
        prompt = [BOS, *range(20 + row, 22 + row + row % 2), HEADER]
        answer = [*range(40 + 5 * row, 42 + 5 * row + row % 3), STOP]
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        mask[row, len(prompt) : len(prompt) + len(answer)] = True
    return {"input_ids": ids, "attention_mask": ids != 0, "completion_mask": mask}


def all_checks(tokens, **settings):
    return [
        check_supervised_tokens(tokens, **settings),
        check_label_alignment(tokens, [STOP]),
        check_stop_token(tokens, [STOP]),
        check_double_bos(tokens),
    ]


def test_right_masks_pass_in_either_form(tokens):
    assert {result.status for result in all_checks(tokens)} == {"ok"}
    labels = tokens["input_ids"].masked_fill(~tokens.pop("completion_mask"), -100)
    assert {result.status for result in all_checks({**tokens, "labels": labels})} == {"ok"}


def test_nothing_counts(tokens):
    tokens["completion_mask"][:] = False
    assert check_supervised_tokens(tokens).cause == "all_masked"
    assert check_label_alignment(tokens, [STOP]).status == "unknown"


def test_everything_counts(tokens):
    tokens["completion_mask"] = tokens["attention_mask"].clone()
    tokens["completion_mask"][:, 0] = False
    by_intention = {meant: check_supervised_tokens(tokens, whole_rows_meant=meant) for meant in (True, None, False)}
    assert by_intention[True].status == "ok"
    assert (by_intention[None].cause, by_intention[None].severity) == ("none_masked", "info")
    assert (by_intention[False].cause, by_intention[False].severity) == ("none_masked", "warn")


@pytest.mark.parametrize("places", [-1, 1])
def test_a_mask_moved_by_one(tokens, places):
    tokens["completion_mask"] = tokens["completion_mask"].roll(places, dims=1)
    result = check_label_alignment(tokens, [STOP])
    assert (result.kind, result.cause) == ("labels_masked", "off_by_one")


def test_labels_that_are_already_shifted(tokens):
    labels = tokens["input_ids"].roll(-1, dims=1).masked_fill(~tokens.pop("completion_mask"), -100)
    result = check_label_alignment({**tokens, "labels": labels})
    assert result.cause == "off_by_one"
    assert result.measured["labels_equal_next_inputs"] == 1.0


def test_a_stop_token_that_is_masked_or_missing(tokens):
    tokens["completion_mask"] &= tokens["input_ids"] != STOP
    result = check_stop_token(tokens, [STOP])
    assert (result.cause, result.measured["rows_with_it"]) == ("eos_not_in_labels", 6)
    assert check_label_alignment(tokens, [STOP]).status == "ok"  # the answers begin differently: only the end is off
    tokens["input_ids"][tokens["input_ids"] == STOP] = 9
    assert check_stop_token(tokens, [STOP]).measured["rows_with_it"] == 0
    assert check_stop_token(tokens, []).status == "unknown"


def test_two_bos(tokens):
    for name in tokens:
        first = tokens[name][:, :1]
        tokens[name] = torch.cat([first, tokens[name]], dim=1)
    assert check_double_bos(tokens).cause == check_double_bos(tokens, bos_id=BOS).cause == "double_bos"
    tokens["input_ids"][0, 1] = 7
    assert check_double_bos(tokens).status == "ok"
    assert check_double_bos({name: value[:2] for name, value in tokens.items()}).status == "unknown"
