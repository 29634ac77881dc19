"""Broken supervised, reward and preference learning, from outside."""

import random
from collections.abc import Sequence
from dataclasses import replace

from fault import LONG, SHORT, Fault
from rl_faults import ADAM, drop_out, negate_loss, perturb_reference

from lit_rlhf.data.samples import Sample


class Changed(Sequence):
    """Examples, each changed when it is read."""

    def __init__(self, examples, change):
        self.examples, self.change = examples, change

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, place):
        return self.change(self.examples[place], place)

    def __getattr__(self, name):
        if name == "sizes":  # to be measured anew
            raise AttributeError(name)
        return getattr(self.examples, name)


def change_training(change):
    def inject(trainer, module):
        data = trainer.datamodule
        examples = data.tables["train"]
        data.tables["train"] = Changed(examples, lambda example, place: change(example, place, examples))

    return inject


def swapped(example, place, examples):
    return replace(example, samples=list(example.samples)[::-1])


def coin_flipped(example, place, examples):
    return swapped(example, place, examples) if random.Random(place).random() < 0.5 else example


def identical(example, place, examples):
    return replace(example, samples=[example.samples[0], example.samples[0]])


def label_turned(example, place, examples):
    return replace(example, label=1.0 - example.label)


def nothing_masked(example, place, examples):
    return _with_masks(example, lambda sample: [False] + [True] * (len(sample) - 1))


def shifted_left(example, place, examples):
    return _with_masks(example, lambda sample: [*list(sample.mask)[1:], False])


def end_masked(example, place, examples):
    """What pad == eos does to labels: every end of sequence is taken for padding."""
    return _with_masks(example, lambda sample: [*list(sample.mask)[:-1], False])


def _with_masks(example, mask):
    samples = [Sample(list(s.ids), [bool(m) for m in mask(s)], s.num_prompt) for s in example.samples]
    return replace(example, samples=samples)


def doubled_bos(example, place, examples):
    samples = [Sample([s.ids[0], *s.ids], [False, *map(bool, s.mask)], s.num_prompt + 1) for s in example.samples]
    return replace(example, samples=samples)


def strangers_completion(example, place, examples):
    """Rows got out of step: each prompt has the completion of another."""
    other = examples[(place * 7919 + 13) % len(examples)].samples[0]
    mine = example.samples[0]
    ids = [*mine.ids[: mine.num_prompt], *other.ids[other.num_prompt :]]
    mask = [False] * mine.num_prompt + [True] * (len(other.ids) - other.num_prompt)
    return replace(example, samples=[Sample(ids, mask, mine.num_prompt)])


def garbage(example, place, examples):
    """Completions of random letters: what a broken decoder writes."""
    noise = random.Random(place)
    mine = example.samples[0]
    letters = [noise.choice(range(ord("a"), ord("z") + 1)) for _ in range(len(mine.ids) - mine.num_prompt - 1)]
    known = sorted({int(i) for e in range(50) for i in examples[e].samples[0].ids})
    ids = [*mine.ids[: mine.num_prompt], *(known[letter % len(known)] for letter in letters), mine.ids[-1]]
    return replace(example, samples=[Sample(ids, [bool(m) for m in mine.mask], mine.num_prompt)])


def longer_chosen(example, place, examples):
    """Annotators who liked length: the chosen one is a rejected one with more behind it."""
    rejected = example.samples[1]
    body = [int(i) for i in rejected.ids]
    ids = [*body[:-1], *body[rejected.num_prompt : -1], body[-1]]
    mask = [False] * rejected.num_prompt + [True] * (len(ids) - rejected.num_prompt)
    return replace(example, samples=[Sample(ids, mask, rejected.num_prompt), rejected])


def sum_instead_of_mean(trainer, module):
    """ORPO on sums of log-probs: the odds of a whole sequence vanish."""
    from lit_rlhf.algorithms.pairs import PairLogps

    share, loss = module._pairs, module.pair_loss
    lengths = []

    def pairs(sums, mask):
        lengths.append(mask.sum(-1))
        return share(sums, mask)

    def pair_loss(logps):
        count = lengths[-1]
        return loss(
            PairLogps(
                chosen=logps.chosen * count[0::2], rejected=logps.rejected * count[1::2],
                ref_chosen=logps.ref_chosen, ref_rejected=logps.ref_rejected,
            )
        )  # fmt: skip

    module._pairs, module.pair_loss = pairs, pair_loss


def mean_instead_of_sum(trainer, module):
    """DPO's beta on means over tokens."""
    from lit_rlhf.algorithms.pairs import PairLogps

    share, loss = module._pairs, module.pair_loss
    lengths = []

    def pairs(sums, mask):
        lengths.append(mask.sum(-1))
        return share(sums, mask)

    def pair_loss(logps):
        chosen, rejected = lengths[-1][0::2], lengths[-1][1::2]
        return loss(
            PairLogps(
                chosen=logps.chosen / chosen, rejected=logps.rejected / rejected,
                ref_chosen=logps.ref_chosen / chosen, ref_rejected=logps.ref_rejected / rejected,
            )
        )  # fmt: skip

    module._pairs, module.pair_loss = pairs, pair_loss


def shuffled_reference_table(trainer, module):
    """A cache of reference log-probs whose rows are one off."""
    load = module._load_table

    def broken(split):
        known = split in module.ref_tables
        load(split)
        if not known and split in module.ref_tables:
            table = module.ref_tables[split]
            rows = sorted(table)
            values = [table[row] for row in rows]
            module.ref_tables[split] = dict(zip(rows, values[1:] + values[:1], strict=True))

    module._load_table = broken


def lose_the_optimizer(trainer, module):
    """A resume that restores the weights and nothing else."""
    restore = trainer._checkpoint_connector.restore_optimizers
    trainer._checkpoint_connector.restore_optimizers = lambda: None
    del restore


def jump_the_rate(trainer, module):
    """A resume whose schedule begins anew."""
    restore = trainer._checkpoint_connector.restore_optimizers

    def broken():
        restore()
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] *= 30

    trainer._checkpoint_connector.restore_optimizers = broken


def lose_the_data_order(trainer, module):
    """A resume that starts the epoch again."""
    loader = trainer.datamodule.train_dataloader

    def broken():
        made = loader()
        made.load_state_dict = lambda state: None
        return made

    trainer.datamodule.train_dataloader = broken


FEW = ("--trainer.max_steps", "120", "--data.limit", "32")

FAULTS = [
    *(
        Fault(
            "swapped_pairs", config, change_training(swapped), args=(*LONG, *rate),
            kinds=("pairs_swapped", "reward_model_order", "held_out_overfit"), causes=("labels_swapped",),
        )
        for config, rate in (("dpo", ()), ("simpo", ()), ("reward_model", ()))
    ),
    Fault(
        "turned_labels", "kto", change_training(label_turned),
        args=SHORT,
 kinds=("pairs_swapped", "sign_flipped"), causes=("labels_swapped", "pairs_swapped"),
    ),
    *(
        Fault(
            "coin_flipped_pairs", config, change_training(coin_flipped),
            kinds=("accuracy_at_chance", "reward_model_at_chance"), causes=("labels_noisy",),
        )
        for config in ("dpo", "reward_model")
    ),
    *(
        Fault(
            "identical_pairs", config, change_training(identical),
            args=SHORT,
 kinds=("identical_pairs",), causes=("duplicate_rows", "truncation_too_short"),
        )
        for config in ("dpo", "reward_model")
    ),
    *(
        Fault(
            "negated_loss", config, negate_loss,
            kinds=("sign_flipped", "loss_diverges", "pairs_swapped", "accuracy_at_chance"),
            causes=("advantage_sign", "loss_sign", "labels_swapped", "pairs_swapped"),
        )
        for config in ("dpo", "sft", "reward_model")
    ),
    *(
        Fault(
            "nothing_masked", config, change_training(nothing_masked),
            args=SHORT,
 kinds=("labels_masked",), causes=("none_masked",),
        )
        for config in ("sft", "dpo")
    ),
    Fault("shifted_labels", "sft", change_training(shifted_left), args=SHORT,
 kinds=("labels_masked",), causes=("off_by_one",)),
    *(
        Fault(
            "untrained_end", config, change_training(end_masked),
            args=SHORT,
 kinds=("stop_token_untrained",), causes=("eos_not_in_labels",),
        )
        for config in ("sft", "dpo")
    ),
    *(
        Fault("double_bos", config, change_training(doubled_bos), args=SHORT,
 kinds=("template_mismatch",), causes=("double_bos",))
        for config in ("sft", "dpo")
    ),
    Fault(
        "rows_out_of_step", "sft", change_training(strangers_completion),
        kinds=("held_out_overfit", "loss_diverges", "loss_flat", "sentinel_cliff"),
        causes=("labels_shuffled", "bad_data"),
    ),
    Fault(
        "garbage_data", "sft", change_training(garbage),
        kinds=("sentinel_cliff", "loss_diverges", "held_out_overfit", "loss_flat"),
        causes=("bad_data", "labels_shuffled"),
    ),
    *(
        Fault(
            "too_little_data", config, args=(*FEW, ADAM, rate),
            kinds=("held_out_overfit", "reward_model_overfit"), causes=("too_little_data", "too_many_epochs"),
        )
        for config, rate in (("sft", "3e-3"), ("reward_model", "4e-4"))
    ),
    Fault(
        "annotators_like_length", "reward_model", change_training(longer_chosen),
        kinds=("reward_model_length_only",), causes=("length_bias",),
    ),
    Fault(
        "displacement", "dpo", args=("--trainer.max_steps", "160", "--data.limit", "320", ADAM, "4e-4"),
        kinds=("displacement", "held_out_overfit"),
        causes=("learning_rate_too_high", "too_many_epochs", "too_little_data"),
    ),
    Fault(
        "beta_on_means", "dpo", mean_instead_of_sum,
        kinds=("beta_scale", "loss_flat", "policy_not_moving"), causes=("beta_wrong_scale", "beta_too_high"),
    ),
    Fault("odds_of_sums", "orpo", sum_instead_of_mean, kinds=("orpo_numerics",), causes=("sum_log_probs",)),
    *(
        Fault(
            "perturbed_reference", config, perturb_reference,
            args=SHORT,
 kinds=("loss_off_at_start", "reference_not_start"), causes=("reference_not_start",),
        )
        for config in ("dpo", "kto")
    ),
    Fault(
        "wrong_reference_cache", "dpo", shuffled_reference_table, args=(*SHORT, "--model.reference", "precomputed"),
        kinds=("loss_off_at_start", "reference_not_start"), causes=("wrong_reference_cache", "reference_not_start"),
    ),
    *(
        Fault(
            "hidden_dropout", config, drop_out,
            args=SHORT,
 kinds=("loss_off_at_start", "reference_not_start", "ratio_not_one"), causes=("dropout_on",),
        )
        for config in ("dpo", "ipo")
    ),
    *(
        Fault(
            "optimizer_lost", config, lose_the_optimizer, at=30, resume=True,
            kinds=("resume_discontinuity",), causes=("optimizer_state_lost",),
        )
        for config in ("sft", "dpo")
    ),
    *(
        Fault(
            "rate_after_resume", config, jump_the_rate, at=30, resume=True,
            kinds=("resume_discontinuity",), causes=("learning_rate_jumped",),
        )
        for config in ("sft", "grpo")
    ),
    Fault(
        "order_lost", "sft", lose_the_data_order, at=30, resume=True,
        kinds=("resume_discontinuity",), causes=("data_order_lost",),
    ),
]  # fmt: skip
