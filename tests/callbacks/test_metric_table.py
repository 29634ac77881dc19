from lit_rlhf_callbacks.metric_table import METRICS, as_markdown, describe, in_table_order
from lit_rlhf_callbacks.policy_metrics import MAXIMA, MEANS


def test_every_metric_stands_once_and_says_everything() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(cell for metric in METRICS for cell in metric)


def test_what_the_monitor_measures_is_in_the_table() -> None:
    own = {"grad_norm", "learning_rate", "tokens_per_second", "hours", "device_hours", "kl"}
    assert all(describe(name) for name in {*MEANS, *MAXIMA, *own})


def test_exact_names_come_before_families() -> None:
    assert describe("eval/n").unit == "count"
    assert describe("eval/anything").name == "eval/{name}"
    assert describe("rewards/chosen").name == "rewards/chosen"
    assert describe("nothing/of/ours") is None


def test_order_is_the_tables() -> None:
    given = ["zoo", "eval/n", "hours", "rewards/b/mean", "rewards/a/mean", "global_step"]
    assert in_table_order(given) == ["global_step", "hours", "rewards/a/mean", "rewards/b/mean", "eval/n", "zoo"]


def test_markdown_has_a_row_per_metric_and_no_broken_cells() -> None:
    lines = as_markdown().splitlines()
    assert len(lines) == len(METRICS) + 2
    assert {line.replace("\\|", "").count("|") for line in lines} == {6}
