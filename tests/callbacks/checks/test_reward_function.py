"""Reward functions of every kind a user might write, asked about known answers."""

import itertools
import random

import pytest

from lit_rlhf_callbacks.checks.reward_function import check_reward_function, gravest

TEXTS = {"right": ["cba", "<answer>cba</answer>"], "wrong": ["xyz", "<answer>xyz</answer>"], "empty": [""]}
CASES = [case for case, texts in TEXTS.items() for _ in texts]
ALL = [text for texts in TEXTS.values() for text in texts]
random_scores = itertools.count()


def verdict(function, means=None, judges=True):
    return check_reward_function("f", lambda: [function(text) for text in ALL], CASES, judges=judges, means=means)


@pytest.mark.parametrize(
    "function",
    [
        lambda text: float(text == "cba"),
        lambda text: float(text == "<answer>cba</answer>"),  # one of the forms is enough
        lambda text: 1.0 if "cba" in text else (0.2 if text else None),
        lambda text: 0.0 if "cba" in text else -1.0,
    ],
)
def test_verifiers_that_work(function):
    assert verdict(function).status == "ok"


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (lambda text: float(text != ""), "accepts_wrong_answer"),
        (lambda text: float("xyz" in text), "accepts_wrong_answer"),
        (lambda text: float(text in ("cba", "")), "accepts_empty_answer"),
        (lambda text: float(len(text) // 0), "grader_crashes"),
        (lambda text: float(next(random_scores)), "reward_random"),
    ],
)
def test_verifiers_that_are_wrong_at_once(function, cause):
    result = verdict(function)
    assert (result.status, result.kind, result.cause) == ("failed", "reward_function_broken", cause)


def test_random_scores_are_critical_only_where_right_answers_get_no_more():
    noise = random.Random(0)
    blind = verdict(lambda text: float(noise.random() < 0.5))
    unsteady = verdict(lambda text: ("cba" in text) + 0.1 * noise.random())
    assert (blind.cause, blind.severity) == ("reward_random", "critical")
    assert (unsteady.cause, unsteady.severity) == ("reward_random", "warn")


@pytest.mark.parametrize(
    ("score", "means", "cause"),
    [(0.0, [0.0] * 3, "rejects_right_answer"), (0.5, [0.5] * 3, "reward_constant"), (None, [], "reward_none")],
)
def test_nothing_is_better_than_wrong_neither_here_nor_in_training(score, means, cause):
    assert verdict(lambda text: score).status == "unknown"  # it may want another form
    assert verdict(lambda text: score, means).cause == cause


def test_a_verifier_that_wants_another_form_is_left_alone():
    assert verdict(lambda text: 0.0, [0.0, 0.1, 0.0]).status == "unknown"


def test_length_and_form_are_not_judged():
    assert verdict(lambda text: -float(len(text)), judges=False).status == "ok"
    assert verdict(lambda text: 0.0, judges=False).status == "ok"


def test_of_several_functions_the_one_that_fails_is_told():
    good, bad = verdict(lambda text: float(text == "cba")), verdict(lambda text: float(text != ""))
    assert gravest([good, bad]) is gravest([bad, good]) is bad
