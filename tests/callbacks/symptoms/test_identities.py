"""What must hold before the first update, read off the first row."""

import math

import pytest

from lit_rlhf_callbacks.symptoms.catalogue import rank
from lit_rlhf_callbacks.symptoms.identities import KINDS, kl_off_at_start, loss_off_at_start, ratio_off_at_start

LN2 = math.log(2)
BY_ID = {kind.id: kind for kind in KINDS}
DPO = {
    "stage": "preference",
    "step0__preference_loss": LN2,
    "step0__rewards/margins": 0.0,
    "beta": 0.1,
    "trainer__precision": "32-true",
}


def test_a_first_loss_that_is_not_ln_2_is_named_at_once(view_of):
    alarm = loss_off_at_start(view_of({"preference_loss": 0.80}, 1, **DPO))
    assert (alarm.kind, alarm.severity, alarm.basis, alarm.onset) == ("loss_off_at_start", "critical", "exact", (1, 1))
    assert loss_off_at_start(view_of({"preference_loss": LN2 + 1e-4, "rewards/margins": 1e-4}, 1, **DPO)) is None


def test_bf16_has_its_tolerance(view_of):
    columns = {"preference_loss": LN2 + 0.02, "rewards/margins": 0.03}
    assert loss_off_at_start(view_of(columns, 1, **DPO)) is not None
    assert loss_off_at_start(view_of(columns, 1, **{**DPO, "trainer__precision": "bf16-mixed"})) is None


def test_a_margin_at_the_start_shows_a_wrong_reference_where_the_loss_hides_it(view_of):
    alarm = loss_off_at_start(view_of({"preference_loss": LN2, "rewards/margins": 0.3}, 1, **DPO))
    assert alarm.evidence[0].metric == "rewards/margins"


def test_later_rows_are_not_the_start(view_of):
    assert loss_off_at_start(view_of({"preference_loss": 0.5}, 3, first=10, **DPO)) is None
    resumed = view_of({"preference_loss": 0.5}, 3, **DPO)
    resumed.history.anchor(3)
    resumed.history.add(4, {"preference_loss": 0.4})
    assert loss_off_at_start(resumed) is None


def test_a_sparse_log_that_begins_with_an_evaluation_has_no_first_row(view_of):
    columns = {"eval/preference_loss": lambda step: LN2 if step == 0 else None}
    columns["preference_loss"] = lambda step: 0.5 if step else None
    view = view_of(columns, 1, first=0, **DPO)
    view.history.add(10, {"preference_loss": 0.5})
    assert loss_off_at_start(view) is None


def test_what_the_first_row_showed_is_not_forgotten(view_of):
    later = {"preference_loss": lambda step: 0.8 if step == 1 else 0.5}
    assert loss_off_at_start(view_of(later, 700, **DPO)).onset == (1, 1)
    in_place = {"preference_loss": lambda step: LN2 if step == 1 else 0.5}
    assert loss_off_at_start(view_of(in_place, 700, **DPO)) is None


def test_the_scale_of_ipo_is_known(view_of):
    facts = {**DPO, "step0__preference_loss": 25.0}
    assert loss_off_at_start(view_of({"preference_loss": 25.0}, 1, **facts)) is None
    assert loss_off_at_start(view_of({"preference_loss": 6.25}, 1, **facts)) is not None


def test_a_new_reward_head_scores_near_zero(view_of):
    facts = {"stage": "reward_model", "step0__reward_loss": LN2}
    assert loss_off_at_start(view_of({"reward_loss": LN2 + 0.05}, 1, **facts)) is None
    alarm = loss_off_at_start(view_of({"reward_loss": 1.9}, 1, **facts))
    assert alarm.severity == "warn"


@pytest.mark.parametrize(
    ("rule", "name", "good", "bad", "kind"),
    [
        (kl_off_at_start, "kl", 0.0, 0.05, "reference_not_start"),
        (ratio_off_at_start, "ratio/mean", 1.0, 1.03, "ratio_not_one"),
    ],
)
def test_kl_and_ratio_have_known_starts(view_of, rule, name, good, bad, kind):
    facts = {"stage": "rl", f"step0__{name}": good, "trainer__precision": "32-true"}
    assert rule(view_of({name: good}, 1, **facts)) is None
    assert rule(view_of({name: bad}, 1, **facts)).kind == kind
    assert rule(view_of({name: bad}, 1, stage="rl")) is None  # nobody said what it should be


def test_settings_say_which_cause_is_likeliest(view_of):
    view = view_of({"kl": 0.05}, 1, stage="rl", model__dropout=True, step0__kl=0.0)
    assert rank(BY_ID["ratio_not_one"], view)[0].id == "dropout_on"
    cached = view_of({"preference_loss": 0.9}, 1, **{**DPO, "model__reference": "precomputed"})
    first_two = [cause.id for cause in rank(BY_ID["loss_off_at_start"], cached)[:2]]
    assert "wrong_reference_cache" in first_two
