import pytest
import torch

from lit_rlhf.functional import kl as functional_kl
from lit_rlhf.functional import logprobs as functional_logprobs
from lit_rlhf_callbacks import scoring


def test_shifting_is_that_of_lit_rlhf() -> None:
    logits, ids = torch.randn(3, 7, 11), torch.randint(11, (3, 7))

    assert torch.equal(scoring.token_logps(logits, ids), functional_logprobs.token_logps(logits, ids))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimators_are_those_of_lit_rlhf(estimator: scoring.KLEstimator) -> None:
    logps, ref_logps = torch.randn(4, 9) * 20, torch.randn(4, 9) * 20  # some beyond the clamp

    ours = scoring.kl_estimate(logps, ref_logps, estimator)
    assert torch.equal(ours, functional_kl.kl_estimate(logps, ref_logps, estimator))
