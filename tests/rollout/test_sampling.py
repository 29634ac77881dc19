import pytest

from lit_rlhf.rollout import Sampling
from lit_rlhf_callbacks.errors import UserError


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("max_new_tokens", 0),
    ],
)
def test_invalid_settings_are_named(setting, value):
    with pytest.raises(UserError, match=f"sampling: {setting} is {value}"):
        Sampling(**{setting: value})
