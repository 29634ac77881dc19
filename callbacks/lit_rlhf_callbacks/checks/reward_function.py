"""Whether a reward function knows a right answer from a wrong one, an empty one and itself."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance

from lit_rlhf_callbacks.checks.result import failed, passed, unknown
from lit_rlhf_callbacks.symptoms.finding import CheckResult

Scores = Sequence[float | None]
NAME = "reward_function"
NUM_MORE = 10  # times that a function of random answers is asked again
NUM_SIGMAS = 2.0


def check_reward_function(
    name: str,
    call: Callable[[], Scores],
    cases: Sequence[str],
    *,
    judges: bool,
    means: Sequence[float | None] | None = None,
    step: int = 0,
) -> CheckResult:
    """Ask a reward function twice about answers that are known.

    A function that rejects every right answer it is shown may only want another form. So that verdict waits for what
    it gave in training: it stands when there, too, nothing was better than a wrong answer.

    Args:
        name: Of the function.
        call: Scores the cases.
        cases: What each case is: ``right`` (the same answer in several forms), ``wrong`` (another in the same forms,
            in the same order), ``empty``, ``truncated`` (not judged: whether half an answer counts is a choice).
        judges: Whether the function defines what is right. One that measures length or form, or a model, does not; it
            is only asked for the same answer twice.
        means: Its mean score in each of the first windows, None where it gave none; None before there are windows.
        step: Updates made.
    """
    try:
        scores, again = list(call()), list(call())
        more = [list(call()) for _ in range(NUM_MORE)] if judges and scores != again else []
    except Exception as error:  # a user's function; that it raises is the finding
        text = f"'{name}' raises {type(error).__name__} on known answers: {error}"
        return failed(NAME, step, "reward_function_broken", "grader_crashes", text, severity="warn")
    by_case = {case: [score for c, score in zip(cases, scores, strict=True) if c == case] for case in set(cases)}
    measured = {f"{name}/{case}": _best(values) for case, values in by_case.items() if _best(values) > -_INF}
    if scores != again:
        text = f"'{name}' scores the same answers differently when asked twice"
        is_blind = judges and not _tells_on_average([scores, again, *more], cases)
        if is_blind:
            text += f", and over {NUM_MORE + 2} times right answers got no more than wrong ones"
            return failed(NAME, step, "reward_function_broken", "reward_random", text, measured)
        return failed(
            NAME, step, "reward_function_broken", "reward_random", text, measured, "warn" if judges else "info"
        )
    if not judges:
        return passed(NAME, step, f"'{name}' scores alike when asked twice; what is right it does not say", measured)
    return _judge(name, by_case, measured, means, step)


def gravest(results: Sequence[CheckResult]) -> CheckResult:
    """Return one result for all functions: the first that failed, else the first that is not known, else the first."""
    order = {"failed": 0, "unknown": 1, "ok": 2}
    return min(results, key=lambda result: (order[result.status], result.severity == "info"))


def _tells_on_average(asked: Sequence[Scores], cases: Sequence[str]) -> bool:
    """Tell whether right answers get more than wrong ones over many calls, beyond what chance gives."""
    by_case = {
        case: [_value(score) for scores in asked for c, score in zip(cases, scores, strict=True) if c == case]
        for case in ("right", "wrong")
    }
    right, wrong = by_case["right"], by_case["wrong"]
    if min(len(right), len(wrong)) < 2 or -_INF in (*right, *wrong):
        return True  # nothing to compare
    error = math.sqrt(variance(right) / len(right) + variance(wrong) / len(wrong))
    return fmean(right) - fmean(wrong) > NUM_SIGMAS * error


_INF = float("inf")


def _judge(
    name: str, by_case: dict[str, list[float | None]], measured: dict[str, float], means: Scores | None, step: int
) -> CheckResult:
    rights, wrongs, empty = by_case.get("right", []), by_case.get("wrong", []), _best(by_case.get("empty", []))
    right = _best(rights)
    place = next((i for i, score in enumerate(rights) if score == right), 0)
    wrong = _value(wrongs[place]) if len(wrongs) == len(rights) else _best(wrongs)
    others = max(wrong, empty)
    shown = ", ".join(f"{case.split('/')[-1]} {score:g}" for case, score in measured.items())
    if right > others and right > -_INF:
        return passed(NAME, step, f"'{name}' tells a right answer from a wrong and an empty one ({shown})", measured)
    kind = "reward_function_broken"
    if wrong > right:
        text = f"'{name}' gives a wrong answer {wrong:g}, more than a right one ({right:g})"
        return failed(NAME, step, kind, "accepts_wrong_answer", text, measured)
    if right > -_INF and right > min(_value(score) for score in [*wrongs, *by_case.get("empty", []), *rights]):
        if empty >= right > wrong:
            text = f"'{name}' gives an empty answer {empty:g}, as much as a right one ({right:g})"
            return failed(NAME, step, kind, "accepts_empty_answer", text, measured)
        text = f"'{name}' gives a wrong answer {wrong:g}, as much as a right one ({right:g})"
        return failed(NAME, step, kind, "accepts_wrong_answer", text, measured)
    if means is None:
        return unknown(NAME, step, f"'{name}' scores all known answers alike; it may want another form ({shown})")
    if any(mean is not None and mean > right + 1e-6 for mean in means):
        return unknown(NAME, step, f"'{name}' wants a form that the known answers do not have ({shown})")
    if right == -_INF:
        text = f"'{name}' gives no score to any known answer, nor in the first {len(means)} windows"
        return failed(NAME, step, kind, "reward_none", text, measured)
    cause = "reward_constant" if right != 0 else "rejects_right_answer"
    text = f"'{name}' gives a right answer {right:g}, like a wrong one, and nothing better in {len(means)} windows"
    return failed(NAME, step, kind, cause, text, measured)


def _value(score: float | None) -> float:
    return -_INF if score is None else float(score)


def _best(scores: Scores) -> float:
    return max((_value(score) for score in scores), default=-_INF)
