"""Reward models: what they log is what a formula says, ties and calibration included, and they learn."""

import math

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.calibration import CalibrationMeter
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.reward_model import BradleyTerry, OutcomeReward, PlackettLuce, ProcessReward
from lit_rlhf.algorithms.sft import SFT
from lit_rlhf.backbone import Backbone, LoRA
from lit_rlhf.backbone.heads import last_real
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.window_loader import WindowLoader

ALL = [BradleyTerry, PlackettLuce, OutcomeReward, ProcessReward]


def sample(*completion, prompt=(5, 6)):
    return Sample([*prompt, *completion], [False] * len(prompt) + [True] * len(completion), len(prompt))


PAIRS = [
    Example(0, [sample(10, 11, 2), sample(12, 2)], 0.5),
    Example(1, [sample(13, 2), sample(14, 15, 16, 2)]),
    Example(2, [sample(17, 2), sample(17, 2)]),  # a tie, whatever the weights
]
RANKINGS = [Example(0, [sample(10, 2), sample(11, 2), sample(12, 13, 2)]), Example(1, [sample(14, 2), sample(15, 2)])]
JUDGED = [Example(0, [sample(10, 11, 2)], 1.0), Example(1, [sample(12, 2)], 0.0), Example(2, [sample(13, 2)], 1.0)]
STEPS = [
    Example(0, [Sample([5, 6, 10, 11, 12], [False, False, True, False, True], 2)], None, [(2, 1.0), (4, 0.0)]),
    Example(1, [Sample([5, 6, 13], [False, False, True], 2)], None, [(2, 1.0)]),
]
ROWS = {BradleyTerry: PAIRS, PlackettLuce: RANKINGS, OutcomeReward: JUDGED, ProcessReward: STEPS}


@pytest.fixture
def measured():
    """A function: the loss of some examples and their metrics by name, for a module with given scores per position."""

    def measure(module, examples, logits=None, prefix=""):
        module.backbone.load()
        tensors = collate(examples, module.backbone.pad_id)
        if logits is None:
            module.backbone.head.weight.data.zero_()
        else:
            module.score_positions = lambda _: logits
        batch = Batch(
            parts=[examples],
            num_examples=len(examples),
            num_tokens=sum(example.num_tokens for example in examples),
            closes_window=True,
        )
        share, shown = module.window_share(tensors, batch)
        meter = WindowMeter()
        module.measure(meter, shown, prefix)
        return share.item(), meter.compute()

    return measure


@pytest.mark.parametrize("kind", ALL)
def test_the_learning_rate_is_ten_times_that_of_sft(kind):
    lr = kind().optimizer["init_args"]["lr"]
    assert lr == pytest.approx(10 * SFT().optimizer["init_args"]["lr"])


@pytest.mark.parametrize("kind", [BradleyTerry, OutcomeReward, ProcessReward])
def test_where_all_scores_are_zero_the_loss_is_ln_2_and_half_is_right(measured, kind):
    module = kind()
    _, metrics = measured(module, ROWS[kind])
    assert metrics["reward_loss"] == pytest.approx(math.log(2))
    assert module.step0_values() == {"reward_loss": pytest.approx(math.log(2))}
    assert metrics["accuracy"] == 0.5


def test_where_all_scores_are_zero_a_ranking_of_k_costs_log_k_factorial(measured):
    loss, metrics = measured(PlackettLuce(), RANKINGS)
    assert loss == metrics["reward_loss"] == pytest.approx((math.log(6) + math.log(2)) / 2)


def at_last(examples, scores):
    """Logits ``[S, T]`` that are right at each sample's last token only: pooling anywhere else would show."""
    samples = [sample for example in examples for sample in example.samples]
    logits = torch.full((len(samples), max(map(len, samples))), 99.0)
    for row, (one, score) in enumerate(zip(samples, scores, strict=True)):
        logits[row, len(one) - 1] = score
    return logits


def test_bradley_terry(measured):
    logits = at_last(PAIRS, [2.0, 1.0, -1.0, 1.0, 0.5, 0.5])
    loss, metrics = measured(BradleyTerry(center_coef=0.1), PAIRS, logits)

    def nll(gap):
        return math.log(1 + math.exp(-gap))

    assert loss == pytest.approx((nll(0.5) + nll(-2) + nll(0) + 0.1 * (9 + 0 + 1)) / 3)
    assert metrics["reward_loss"] == pytest.approx((nll(1) + nll(-2) + nll(0)) / 3)
    assert metrics["accuracy"] == 0.5  # one right, one wrong, one tie
    assert metrics["margin"] == pytest.approx((1 - 2 + 0) / 3)
    assert metrics["rewards/chosen"] == pytest.approx(1.5 / 3)
    assert metrics["rewards/rejected"] == pytest.approx(2.5 / 3)
    assert (metrics["min_reward"], metrics["mean_reward"], metrics["max_reward"]) == (-1.0, pytest.approx(4 / 6), 2.0)


def test_plackett_luce(measured):
    _, metrics = measured(PlackettLuce(), RANKINGS, at_last(RANKINGS, [1.0, 2.0, 0.0, 3.0, 1.0]))
    e = math.exp
    first = math.log(e(1) + e(2) + 1) - 1 + math.log(e(2) + 1) - 2
    assert metrics["reward_loss"] == pytest.approx((first + math.log(e(3) + e(1)) - 3) / 2)
    assert metrics["accuracy"] == pytest.approx(3 / 4)  # of four pairs only 1.0 against 2.0 is wrong
    assert metrics["margin"] == pytest.approx((-1 + 1 + 2 + 2) / 4)
    assert metrics["rewards/chosen"] == 2.0


def test_outcome_reward_looks_at_completion_tokens_and_scores_the_last(measured):
    logits = torch.tensor([[9.0, 9.0, 1.0, 0.0, 2.0], [9.0, 9.0, 1.0, -1.0, 9.0], [9.0, 9.0, 0.0, -2.0, 9.0]])
    module = OutcomeReward()
    loss, metrics = measured(module, JUDGED, logits)

    def bce(logit, label):
        return math.log(1 + math.exp(-logit if label else logit))

    tokens = [(1, 1), (0, 1), (2, 1), (1, 0), (-1, 0), (0, 1), (-2, 1)]
    assert loss == pytest.approx(metrics["reward_loss"])
    assert loss == pytest.approx(sum(bce(*token) for token in tokens) / 7)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    p = torch.tensor([2.0, -1.0, -2.0]).sigmoid().tolist()
    assert metrics["rewards/chosen"] == pytest.approx((p[0] + p[2]) / 2)
    assert metrics["rewards/rejected"] == pytest.approx(p[1])
    assert (metrics["min_reward"], metrics["max_reward"]) == (pytest.approx(p[2]), pytest.approx(p[0]))


def test_process_reward_looks_at_the_ends_of_steps(measured):
    logits = torch.tensor([[9.0, 9.0, 1.0, 9.0, -3.0], [9.0, 9.0, -2.0, 9.0, 9.0]])
    loss, metrics = measured(ProcessReward(), STEPS, logits)
    expected = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3)) + math.log(1 + math.exp(2))) / 3
    assert loss == pytest.approx(metrics["reward_loss"])
    assert loss == pytest.approx(expected)
    assert metrics["accuracy"] == pytest.approx(2 / 3)


def test_calibration_is_zero_where_probabilities_are_frequencies():
    meter = CalibrationMeter()
    meter.add(torch.full((10,), 0.75), torch.arange(10) < 7)
    meter.add(torch.full((10,), 0.25), torch.arange(10) < 3)
    assert meter.compute() == pytest.approx(0.05)
    assert meter.compute() is None


def test_a_pair_is_read_both_ways():
    meter = CalibrationMeter()
    meter.add_pairs(torch.zeros(4))
    assert meter.compute() == 0.0  # "either, with probability one half" is what happens
    meter.add_pairs(torch.tensor([20.0, -20.0]))
    assert meter.compute() == pytest.approx(0.5, abs=1e-6)


class FirstTokenDecides(LightningDataModule):
    """Completions that begin with 10 are good, those with 11 bad."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.num_micro_batches, self.max_tokens = kind, 1, None

    def tokenise(self, tokenizer, *, kind, context_length=None):
        torch.manual_seed(0)
        tails = torch.randint(20, 60, (96, 3)).tolist()
        good, bad = ([sample(first, *tail, 2) for tail in tails] for first in (10, 11))
        if kind == "unpaired":
            rows = [
                (one, label) for pair in zip(good, bad, strict=True) for one, label in zip(pair, (1, 0), strict=True)
            ]
            self.examples = [Example(row, [one], float(label)) for row, (one, label) in enumerate(rows)]
        elif kind == "stepwise":
            ends = [(place, 1.0) for place in (2, 6)], [(place, 0.0) for place in (2, 6)]
            both = [one for pair in zip(good, bad, strict=True) for one in pair]
            self.examples = [
                Example(row, [Sample(one.ids, [place in (2, 6) for place in range(7)], 2)], None, ends[row % 2])
                for row, one in enumerate(both)
            ]
        else:
            self.examples = [Example(row, pair) for row, pair in enumerate(zip(good, bad, strict=True))]

    def train_dataloader(self):
        return WindowLoader(self.examples[32:], 16, self.num_micro_batches)

    def val_dataloader(self):
        return WindowLoader(self.examples[:32], 16, 1, shuffle=False)


@pytest.fixture
def fit(tmp_path):
    """A function that trains a module for eighty updates and returns its held-out metrics."""

    def fit(module):
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=80,
            val_check_interval=40,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, FirstTokenDecides(module.data_kind))
        return {name: float(value) for name, value in trainer.logged_metrics.items()}

    return fit


@pytest.mark.parametrize("kind", ALL)
def test_it_learns_in_eighty_updates(fit, kind):
    torch.manual_seed(0)
    metrics = fit(kind(optimizer=adamw(1e-3)))
    assert metrics["eval/accuracy"] > 0.95
    assert metrics["eval/reward_loss"] < 0.4
    assert metrics["eval/margin"] > 0.3
    assert 0 <= metrics["eval/calibration_error"] < 0.4
    assert metrics["eval/min_reward"] <= metrics["eval/rewards/rejected"] < metrics["eval/rewards/chosen"]


def test_a_trained_one_is_a_start_that_nothing_is_known_of(fit, tmp_path):
    module = BradleyTerry(optimizer=adamw(1e-3))
    before = fit(module)
    module.save_model(tmp_path / "rm")
    again = BradleyTerry(
        model=str(tmp_path / "rm"), optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 0.0}}
    )
    assert again.step0_values() == {}
    after = fit(again)
    for name in ("eval/accuracy", "eval/reward_loss", "eval/mean_reward", "eval/calibration_error"):
        assert after[name] == pytest.approx(before[name], rel=1e-5)


@pytest.mark.parametrize("lora", [None, LoRA(r=2)], ids=["full", "lora"])
def test_resumed_it_goes_on_with_its_head_and_saved_it_scores_the_same(tmp_path, lora):
    def run(ckpt_path=None):
        torch.manual_seed(0 if ckpt_path is None else 1)  # a resumed run would draw another head
        module = BradleyTerry(optimizer=adamw(1e-3), lora=lora)
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=3,
            limit_val_batches=0,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2)],
        )
        trainer.fit(module, FirstTokenDecides("paired"), ckpt_path=ckpt_path)
        return module

    straight, resumed = run(), run(tmp_path / "step=2.ckpt")
    expected, found = straight.backbone.state_dict(), resumed.backbone.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)

    resumed.save_model(tmp_path / "rm")
    saved = Backbone(str(tmp_path / "rm"), head="score")
    saved.load()
    tensors = collate(PAIRS, saved.pad_id)
    with torch.no_grad():
        scores = saved.score_head(tensors["input_ids"], tensors["attention_mask"])
        torch.testing.assert_close(
            last_real(scores, tensors["attention_mask"]), resumed.rewards(tensors), atol=1e-5, rtol=1e-5
        )
