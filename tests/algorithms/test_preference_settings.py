"""Preference settings that make no sense are refused in one line before anything is loaded."""

import pytest

from lit_rlhf.algorithms import CDPO, CPO, DPO, RobustDPO
from lit_rlhf_callbacks.errors import UserError


@pytest.mark.parametrize("algorithm", [CDPO, RobustDPO])
@pytest.mark.parametrize("epsilon", [-0.1, 0.5])
def test_label_smoothing_out_of_range(algorithm, epsilon):
    with pytest.raises(UserError, match=r"model.label_smoothing: .* swap chosen and rejected"):
        algorithm(label_smoothing=epsilon)


def test_alpha_out_of_range():
    with pytest.raises(UserError, match=r"model.alpha: .* got 1; set 0.5"):
        DPO(f_divergence="alpha", alpha=1.0)


def test_a_reference_is_needed_or_it_is_not():
    with pytest.raises(UserError, match=r"model\.reference"):
        DPO(reference="none")
    assert CPO(reference="none").backbone.reference_kind == "none"
