from statistics import correlation

import pytest
import torch
from torch import Tensor

from lit_rlhf_callbacks.completion_metrics import repetition
from lit_rlhf_callbacks.policy_metrics import combine, pack, token_metrics, unpack

PROMPT = "xx"


def batch(texts: list[str], **values: list[float]) -> dict[str, Tensor]:
    """Completions of letters after a prompt of two, padded with spaces."""
    width = len(PROMPT) + max(map(len, texts))
    ids = torch.tensor([[ord(letter) for letter in (PROMPT + text).ljust(width)] for text in texts])
    places = torch.arange(width)
    lengths = torch.tensor([len(text) for text in texts])[:, None]
    mask = (places >= len(PROMPT)) & (places < len(PROMPT) + lengths)
    return {"input_ids": ids, "completion_mask": mask, **{name: torch.tensor(value) for name, value in values.items()}}


def measured(*batches: dict[str, Tensor]) -> dict[str, float]:
    return unpack(combine(torch.stack([pack(*token_metrics(batch), torch.device("cpu")) for batch in batches])))


def repeated_by_hand(text: str, n: int = 4) -> tuple[int, int]:
    grams = [text[start : start + n] for start in range(len(text) - n + 1)]
    return len(grams) - len(set(grams)), len(grams)


@pytest.mark.parametrize(
    "texts",
    [["banana."], ["a" * 12], ["abcabcabc"], ["abc"], ["the cat sat on the cat mat", "xxxx", "xyxyxyxyxy", "q"]],
)
def test_repetition_counts_what_a_set_of_substrings_counts(texts: list[str]) -> None:
    rows = batch(texts)
    repeats, count = repetition(rows["input_ids"], rows["completion_mask"])

    expected = [sum(column) for column in zip(*map(repeated_by_hand, texts), strict=True)]
    assert [int(repeats), int(count)] == expected


def test_ordinary_words_do_not_repeat_and_loops_do() -> None:
    words = batch(["banana.", "reverse.", "ok."])
    assert measured(words)["completions/repetition"] == 0.0
    assert measured(batch(["a" * 12]))["completions/repetition"] == pytest.approx(8 / 9)
    assert measured(batch(["abc" * 5]))["completions/repetition"] == pytest.approx(9 / 12)
    assert "completions/repetition" not in measured(batch(["a.", "b."]))  # nothing long enough to repeat


def test_prompts_and_padding_do_not_count_as_repetition() -> None:
    texts = ["abcd", "abcdefghij"]
    assert measured(batch(texts))["completions/repetition"] == 0.0


def test_an_empty_completion_is_at_most_its_stop() -> None:
    assert measured(batch([".", "a.", ".", "abc."]))["completions/empty_ratio"] == 0.5


def test_reward_with_length_is_pearsons_within_prompts() -> None:
    texts = ["a", "aaa", "aaaa", "aa", "a" * 9, "a" * 7]
    rewards = [0.0, 1.0, 0.5, 3.0, 2.0, 4.0]
    rows = batch(texts, rewards=rewards, prompt_ids=[4, 4, 4, 9, 9, 9])

    def centred(values: list[float]) -> list[float]:
        return [v - sum(group) / 3 for group in (values[:3], values[3:]) for v in group]

    expected = correlation(centred(rewards), centred([float(len(text)) for text in texts]))
    halves = [{name: value[part] for name, value in rows.items()} for part in (slice(3), slice(3, None))]
    assert measured(rows)["rewards/length_correlation"] == pytest.approx(expected, rel=1e-5)
    assert measured(*halves, {})["rewards/length_correlation"] == pytest.approx(expected, rel=1e-5)


def test_without_groups_reward_and_length_are_compared_over_all() -> None:
    rows = batch(["a", "aa", "aaa"], rewards=[1.0, 2.0, 3.0], prompt_ids=[1, 2, 3])
    assert measured(rows)["rewards/length_correlation"] == pytest.approx(1.0)


@pytest.mark.parametrize("rewards", [[0.1, 0.1, 0.1, 0.1], [float("nan")] * 4])
def test_equal_or_unknown_rewards_have_no_correlation(rewards: list[float]) -> None:
    rows = batch(["a", "aa", "aaa", "aaaaa"], rewards=rewards, prompt_ids=[1, 1, 1, 1])
    assert "rewards/length_correlation" not in measured(rows)
