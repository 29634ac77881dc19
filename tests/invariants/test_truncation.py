"""T7: a completion left out because it was cut off is as good as not there, and its length is still told."""

import pytest
import torch
from short_runs import deviation, write_model

import lit_rlhf.algorithms as algorithms
from lit_rlhf.rollout import Sampling

AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("endless"), ends=False)


def without_truncated(algorithm):
    """The algorithm, with cut completions removed from the experience once advantages are known."""

    class Removed(getattr(algorithms, algorithm)):
        def collect(self, rows):
            experience = super().collect(rows)
            return experience.rows((~experience.truncated_mask).nonzero().flatten())

    return Removed


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leaving_out_is_removing(algorithm, run, aggregation):
    settings = {"aggregation": aggregation, "beta": 0.1, "entropy_coef": 0.01, "accumulate": 2}
    left_out = run(algorithm, mask_truncated=True, **settings)
    assert 0 < left_out.metrics[0]["completions/clipped_ratio"] < 1
    removed = run(algorithm, kind=without_truncated(algorithm), **settings)
    assert deviation(left_out, removed) < 1e-6
    assert left_out.metrics[0]["loss"] == pytest.approx(removed.metrics[0]["loss"], abs=1e-6)
    assert deviation(left_out, run(algorithm, **settings)) > 1e-3


def test_all_cut_off(algorithm, run, endless_model):
    settings = {"sampling": Sampling(max_new_tokens=2), "mask_truncated": True, "beta": 0.1, "entropy_coef": 0.01}
    seen = run(algorithm, model=endless_model, accumulate=2, **settings)
    assert seen.metrics[0]["completions/clipped_ratio"] == 1
    assert seen.metrics[0]["loss"] == 0
    assert all(torch.equal(g, torch.zeros_like(g)) for g in seen.gradients[0].values())
    assert seen.tokens == [{}, {}]


def test_lengths_are_those_of_everything_sampled(algorithm, run):
    with_all, left_out = run(algorithm), run(algorithm, mask_truncated=True)
    lengths = with_all.tokens[0]["completion_mask"].sum(-1)
    for metrics in (with_all.metrics[0], left_out.metrics[0]):
        assert metrics["completions/mean_length"] == pytest.approx(float(lengths.float().mean()))
        assert metrics["completions/max_length"] == 10
        assert metrics["completions/mean_terminated_length"] < metrics["completions/mean_length"]
    assert len(left_out.tokens[0]["input_ids"]) < len(lengths)
