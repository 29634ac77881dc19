"""The preference classes on real rows and real models, against TRL's numbers (tests/golden/make_preference_losses.py).

What is compared is everything from token ids on: masks, log-probs of policy and reference, sums or means, the loss.
The table in tests/functional/test_golden_preference_losses.py maps TRL's settings to ours, and says where it departs.
"""

import json
from pathlib import Path

import pytest
import torch

from lit_rlhf.algorithms import (
    CPO,
    DPO,
    IPO,
    KTO,
    ORPO,
    APODown,
    APOZero,
    DPONorm,
    Hinge,
    RobustDPO,
    SimPO,
)
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "preference_losses.json").read_text())
CASES = RECORDED["cases"]
PAIRED = {  # the other settings are our defaults, which is half of what is tested
    "sigmoid": lambda: DPO(),
    "forward_kl": lambda: DPO(f_divergence="forward_kl"),
    "js_divergence": lambda: DPO(f_divergence="js"),
    "robust": lambda: RobustDPO(label_smoothing=0.2),
    "sigmoid_norm": lambda: DPONorm(),
    "ipo": lambda: IPO(),
    "hinge": lambda: Hinge(beta=0.2),
    "apo_zero": lambda: APOZero(),
    "apo_down": lambda: APODown(),
    "cpo": lambda: CPO(nll_coef=0.0),
    "simpo": lambda: SimPO(gamma=0.5),  # TRL's simpo_gamma of 1 over a β of 2
    "orpo": lambda: ORPO(nll_coef=0.0),
}
UNPAIRED = {
    "kto": lambda: KTO(),
    "kto_weighted": lambda: KTO(beta=0.3, desirable_weight=0.9, undesirable_weight=1.33),
}


def prepared(make):
    """Make a module whose policy has moved away from the embedded model as the recorded one has."""
    module = make()
    module.backbone.load()
    with torch.no_grad():
        for parameter in module.backbone.policy.parameters():
            if parameter.dim() == 2:
                parameter.mul_(RECORDED["weight_scale"])
    return module


def samples_of(inputs):
    """Undo TRL's padding."""
    lengths = [sum(row) for row in inputs["attention_mask"]]
    rows = zip(inputs["input_ids"], inputs["mask"], lengths, strict=True)
    return [Sample(ids[:length], mask[:length], mask.index(True)) for ids, mask, length in rows]


def loss_of(module, examples):
    batch = Batch(parts=[examples], num_examples=len(examples), num_tokens=1, closes_window=True)
    share, _ = module.window_share(collate(examples, module.backbone.pad_id), batch)
    return share.item()


@pytest.mark.parametrize("name", PAIRED)
def test_loss_equals_trl(name):
    samples = samples_of(RECORDED["inputs"][CASES[name]["trainer"]])
    num_pairs = len(samples) // 2  # TRL has all chosen rows first
    pairs = [Example(row, [samples[row], samples[num_pairs + row]]) for row in range(num_pairs)]
    expected = CASES[name]["loss"] - CASES[name]["metrics"].get("nll_loss", 0.0)  # whose denominator differs
    assert loss_of(prepared(PAIRED[name]), pairs) == pytest.approx(expected, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("name", UNPAIRED)
def test_kto_and_its_reference_point_equal_trl(name):
    inputs = RECORDED["inputs"]["kto"]
    labelled = zip(samples_of(inputs), inputs["label"], strict=True)
    examples = [Example(row, [sample], float(label)) for row, (sample, label) in enumerate(labelled)]
    module = prepared(UNPAIRED[name])
    module.kl = module.estimate_kl([(example, examples[row - 1]) for row, example in enumerate(examples)])
    assert module.kl.item() == pytest.approx(CASES[name]["metrics"]["kl"], abs=1e-4)
    assert loss_of(module, examples) == pytest.approx(CASES[name]["loss"], abs=2e-5)
