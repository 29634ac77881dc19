"""SFT on its own: packed rows do not see each other, models that would let them are refused, and what is measured."""

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from transformers import AutoModelForCausalLM, AutoTokenizer, BloomConfig

from lit_rlhf import builtin
from lit_rlhf.algorithms.sft import SFT
from lit_rlhf.data import SupervisedData
from lit_rlhf.data.batches import Batch, collate
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture(scope="module")
def tiny():
    module = SFT(packing=True)
    module.configure_model()
    return module


def supervised(*ids):
    return Example(0, [Sample(list(ids), [False] + [True] * (len(ids) - 1), 1)])


def shown(module, examples, row_length):
    batch = Batch(parts=[examples], num_examples=3, num_tokens=1, closes_window=True, row_length=row_length)
    widths = []
    hook = module.backbone.hf_model.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: widths.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    with torch.no_grad():
        _, shown = module.window_share(collate(examples, 0), batch)
    hook.remove()
    return shown, widths


def test_what_a_sequence_is_given_does_not_depend_on_its_neighbours(tiny):
    rest = [supervised(1, 40, 41, 42, 2), supervised(1, 50, 51, 2)]
    first, widths = shown(tiny, [supervised(1, 30, 31, 32, 33, 2), *rest], row_length=15)
    other, _ = shown(tiny, [supervised(4, 99, 98, 97, 96, 7), *rest], row_length=15)
    assert widths == [(1, 15)]  # they did share a row
    assert torch.equal(first["logps"][1:], other["logps"][1:])  # to the last bit
    assert not torch.equal(first["logps"][0], other["logps"][0])
    alone, widths = shown(tiny, rest[:1], row_length=5)
    torch.testing.assert_close(first["logps"][1, :5], alone["logps"][0], atol=1e-6, rtol=0)


def test_no_sequences_first_token_is_scored_by_the_one_before_it(tiny):
    seen, _ = shown(tiny, [supervised(1, 30, 31, 2), supervised(9, 40, 2)], row_length=7)
    assert seen["logps"][:, 0].tolist() == [0, 0]
    assert not seen["is_top"][:, 0].any()


def test_a_model_that_lets_sequences_see_each_other_is_refused(tmp_path):
    AutoTokenizer.from_pretrained(builtin.model_folder("tiny")).save_pretrained(tmp_path)
    config = BloomConfig(hidden_size=32, n_layer=2, n_head=2, vocab_size=261, eos_token_id=2)  # its ALiBi has no reset
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    SFT(model=str(tmp_path)).configure_model()
    with pytest.raises(UserError, match=r"model.packing: .*\(bloom\) sequences that share a row see each other"):
        SFT(model=str(tmp_path), packing=True).configure_model()


class Rows(Callback):
    """Which rows each micro-batch holds."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(sorted(example.row for part in batch.parts for example in part))


def overfit(num_batches, **settings):
    rows = Rows()
    trainer = Trainer(
        accelerator="cpu",
        overfit_batches=num_batches,
        callbacks=[rows],
        max_steps=3,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **settings,
    )
    trainer.fit(SFT(), SupervisedData(limit=40, examples_per_update=4))
    return rows.seen


@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_overfit_batches_trains_on_the_same_rows_in_every_epoch():
    first, *others = overfit(1)
    assert len(first) == 4
    assert others == [first, first]


def test_overfit_batches_is_whole_updates():
    with pytest.raises(UserError, match=r"overfit_batches is 1; give a whole number of micro-batches: updates × 2"):
        overfit(1, accumulate_grad_batches=2)
    with pytest.raises(UserError, match=r"overfit_batches is 0.5"):
        overfit(0.5)
