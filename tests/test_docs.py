"""The docs say what the code does: metrics, algorithms and their configs."""

from pathlib import Path

import yaml

from lit_rlhf.algorithms import PolicyGradient, RewardModel
from lit_rlhf_callbacks.metric_table import as_markdown, describe

ROOT = Path(__file__).parent.parent
SHIPPED = [yaml.safe_load(path.read_text())["model"] for path in (ROOT / "configs").glob("*.yaml")]
RENEW = "python -c 'from lit_rlhf_callbacks.metric_table import as_markdown; print(as_markdown())'"


def test_the_table_of_metrics_is_the_code_s():
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert as_markdown().strip() in text, f"renew the table in docs/metrics.md with: {RENEW}"


def test_every_column_of_a_run_is_described():
    online = "reward reward_std entropy kl policy_loss loss num_tokens time/rollout time/reward time/score time/update"
    dynamic = "dynamic_sampling/extra_prompts dynamic_sampling/missing_prompts rewards/num_dropped"
    held_out = "eval/pass_at_1 eval/pass_at_1_se eval/n eval/reward eval/completions/mean_length"
    names = f"{online} {dynamic} {held_out} rewards/exact_match/mean".split()
    assert [name for name in names if describe(name) is None] == []


def test_every_algorithm_has_a_config_and_a_row():
    rows = (ROOT / "docs" / "algorithms.md").read_text()
    for algorithm in PolicyGradient.__subclasses__() + RewardModel.__subclasses__():
        assert algorithm.__name__ in {model["class_path"] for model in SHIPPED}
        assert f"| `{algorithm.__name__}` |" in rows
