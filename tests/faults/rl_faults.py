"""Broken reinforcement learning: each function breaks a run the way a bug in somebody's code would."""

import copy
from itertools import pairwise
from types import SimpleNamespace

import torch
from fault import LONG, OFTEN, SHORT, Fault
from torch import nn

ADAM = "--model.optimizer.init_args.lr"


def negate_advantages(trainer, module):
    compute = module.compute_advantages
    module.compute_advantages = lambda experience: -compute(experience)


def replace_rewards(score):
    """Break training's rewards only: held-out evaluation keeps the true ones."""

    def inject(trainer, module):
        scorer = module.collector.scorer
        true_score = scorer._score

        def broken(rows, completions, texts):
            table = true_score(rows, completions, texts)
            values = torch.tensor(score(rows, completions, texts, table.total.tolist()), dtype=torch.float32)
            return type(table)(values[:, None].expand_as(table.scores).clone(), values, table.valid_mask, 0)

        scorer._score = broken

    return inject


def break_function(change):
    """Break the reward function itself, for training and evaluation alike."""

    def inject(trainer, module):
        for place, reward in enumerate(module.reward_set.rewards):
            true = reward.function
            module.reward_set.rewards[place] = _with_function(reward, change(true))

    return inject


def _with_function(reward, function):
    broken = copy.copy(reward)
    object.__setattr__(broken, "function", function)
    return broken


def constant(value):
    return lambda true: _signed(true, lambda scores: [value] * len(scores))


def _signed(true, change):
    import functools

    @functools.wraps(true)
    def function(*args, **kwargs):
        return change(true(*args, **kwargs))

    return function


def noisy(true):
    generator = torch.Generator().manual_seed(0)
    return _signed(true, lambda scores: [float(torch.rand((), generator=generator) < 0.5) for _ in scores])


def lengths_of(rows, completions, texts, scores):
    return [len(c.ids) / 12 for c in completions]


def shortness(rows, completions, texts, scores):
    return [-len(c.ids) / 12 for c in completions]


def letter_e(rows, completions, texts, scores):
    """A proxy that is easily gamed: as many e as possible."""
    return [text.count("e") / 12 for text in texts]


def repeats(rows, completions, texts, scores):
    return [sum(a == b for a, b in pairwise(text)) / 12 for text in texts]


def larger(rows, completions, texts, scores):
    return [25 * score for score in scores]


def at_random(rows, completions, texts, scores):
    generator = torch.Generator().manual_seed(len("".join(texts)))
    return torch.rand(len(texts), generator=generator).round().tolist()


def perturb_reference(trainer, module):
    torch.manual_seed(0)
    for parameter in module.backbone.reference.parameters():
        parameter.data += 0.02 * parameter.data.std() * torch.randn_like(parameter) if parameter.dim() > 1 else 0


def move_reference(trainer, module):
    """Copy the policy into the reference after every update, as an EMA with the wrong decay would."""
    step = module.training_step

    def broken(batch, batch_idx):
        module.backbone.reference.load_state_dict(module.backbone.policy.state_dict())
        return step(batch, batch_idx)

    module.training_step = broken


def drop_out(trainer, module):
    for layer in module.backbone.policy.modules():
        if type(layer).__name__.endswith("MLP"):
            layer.register_forward_hook(lambda layer, args, output: nn.functional.dropout(output, 0.1, layer.training))


def stale_sampler(trainer, module):
    """Generate with the start policy for ever: weights never reach the sampler."""
    module.sampler.backbone = copy.deepcopy(module.backbone)


def wrong_temperature(trainer, module):
    generate = module.sampler.generate

    def broken(prompts, group_size, sampling, key):
        hot = copy.copy(sampling)
        object.__setattr__(hot, "temperature", 1.5)
        return generate(prompts, group_size, hot if key.purpose == "train" else sampling, key)

    module.sampler.generate = broken
    module.collector.scorer.sampler = SimpleNamespace(generate=broken)


def never_stop(trainer, module):
    """The sampler waits for a token that the model never writes."""
    broken = copy.copy(module.sampler)
    broken.backbone = _Watched(module.backbone)
    module.collector.scorer.sampler = broken


class _Watched:
    """A backbone whose stop ids are wrong."""

    def __init__(self, backbone):
        self._backbone = backbone
        self.eos_ids = [backbone.config.vocab_size + 7]

    def __getattr__(self, name):
        return getattr(self._backbone, name)


def old_experience(trainer, module):
    """Train on the first rollout for ever."""
    collect, kept = module.collect, []

    def broken(rows):
        fresh = collect(rows)
        kept.append(fresh)
        return kept[0]

    module.collect = broken


def swallow_updates(trainer, module):
    """Keep the weights in bf16 after every step, as bf16-true does."""
    _after_step(trainer, lambda parameter: parameter.data.copy_(parameter.data.bfloat16()))


def freeze_weights(trainer, module):
    """Step on copies: the optimiser was made before the model was wrapped."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            group["params"] = [nn.Parameter(parameter.detach().clone()) for parameter in group["params"]]
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)


def _after_step(trainer, change):
    step = trainer.strategy.optimizer_step

    def broken(optimizer, closure, model=None, **kwargs):
        result = step(optimizer, closure, model=model, **kwargs)
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    change(parameter)
        return result

    trainer.strategy.optimizer_step = broken


def scale_learning_rate(factor):
    def inject(trainer, module):
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] *= factor

    return inject


def not_a_number(trainer, module):
    """One gradient overflows."""
    next(p for p in module.parameters() if p.requires_grad).register_hook(lambda grad: grad * float("nan"))


def spiky_batches(trainer, module):
    """Every ninth window weighs a thousand times as much."""
    scaled = module.scaled
    module.scaled = lambda share: scaled(share) * (1000.0 if trainer.global_step % 9 == 0 else 1.0)


def negate_loss(trainer, module):
    """Ascend instead of descending."""
    scaled = module.scaled
    module.scaled = lambda share: -scaled(share)


def reward_entropy(trainer, module):
    """An entropy bonus that is far too high, and no setting says so."""
    share = module.window_share

    def broken(batch, slot):
        value, shown = share(batch, slot)
        _, entropy, _ = module.backbone.score_tokens(
            batch.input_ids, batch.attention_mask, batch.completion_mask, temperature=1.0, entropy_grad=True
        )
        return value - 1.0 * entropy[batch.completion_mask].mean(), shown

    module.window_share = broken


def negate_kl(trainer, module):
    """The KL's sign is wrong: the policy is rewarded for leaving."""
    share = module.window_share

    def broken(batch, slot):
        module.beta = -abs(module.beta)
        return share(batch, slot)

    module.window_share = broken


def impossible_answers(trainer, module):
    for row in trainer.datamodule.train_rows:
        row["answer"] = "zqxjzqxjzqxj"


def easy_prompts(trainer, module):
    rows = trainer.datamodule.train_rows
    for row in rows:
        row.update(prompt=[{"role": "user", "content": "Which letter comes after a?"}], answer="b")


def slow_rewards(trainer, module):
    import time

    def slow(rows, completions, texts, scores):
        time.sleep(0.6)
        return scores

    replace_rewards(slow)(trainer, module)


GRPO_KL = ("--model.beta", "0.04")
EPOCHS = ("--model.epochs_per_phase", "8", "--model.windows_per_phase", "1")

TOO_HIGH = {"grpo": "2e-2", "rloo": "2e-2", "sft": "1e-1", "dpo": "2e-2", "reward_model": "1e-1"}
TOO_LOW = {"grpo": "4e-7", "rloo": "4e-7", "sft": "5e-7", "dpo": "1e-7", "reward_model": "1e-7"}
NOT_LEARNING = (
    "policy_not_moving",
    "loss_flat",
    "updates_swallowed",
    "reward_model_at_chance",
    "accuracy_at_chance",
)

FAULTS = [
    *(
        Fault("negated_advantages", config, negate_advantages, args=SHORT,
 kinds=("sign_flipped",), causes=("advantage_sign",))
        for config in ("grpo", "rloo", "reinforce")
    ),
    *(
        Fault(
            "constant_reward",
            config,
            break_function(constant(0.0)),
            args=SHORT,
 kinds=("reward_function_broken", "dead_reward"),
            causes=("reward_constant", "rejects_right_answer"),
        )
        for config in ("grpo", "reinforce")
    ),
    *(
        Fault(
            "reward_dies",
            config,
            replace_rewards(lambda rows, completions, texts, scores: [0.0] * len(scores)),
            at=30,
            kinds=("dead_reward", "reward_function_broken"),
            causes=("reward_constant", "grader_crashes", "answer_format_mismatch"),
        )
        for config in ("grpo", "rloo", "reinforce")
    ),
    Fault(
        "accepts_everything",
        "grpo",
        break_function(constant(1.0)),
        args=SHORT,
 kinds=("reward_function_broken", "dead_reward"),
        causes=("accepts_wrong_answer", "reward_constant"),
    ),
    Fault(
        "random_grader",
        "grpo",
        break_function(noisy),
        args=SHORT,
 kinds=("reward_function_broken",),
        causes=("reward_random",),
    ),
    *(
        Fault(
            "impossible_task",
            config,
            impossible_answers,
            args=SHORT,
 kinds=("zero_contrast", "dead_reward"),
            causes=("task_too_hard", "answer_format_mismatch"),
        )
        for config in ("grpo", "rloo")
    ),
    *(
        Fault("easy_task", config, easy_prompts, args=SHORT,
 kinds=("zero_contrast",), causes=("task_too_easy",))
        for config in ("grpo", "dr_grpo")
    ),
    *(
        Fault(
            "rewards_length",
            config,
            replace_rewards(lengths_of),
            at=25,
            args=(*LONG, *OFTEN),
            kinds=("length_hacking", "truncation", "all_truncated"),
            causes=("reward_favours_length", "length_hacking"),
        )
        for config in ("grpo", "rloo")
    ),
    *(
        Fault(
            "rewards_shortness",
            config,
            replace_rewards(shortness),
            at=25,
            args=(*LONG, *OFTEN),
            kinds=("empty_completions",),
            causes=("short_answer_reward", "accepts_empty_answer"),
        )
        for config in ("grpo", "reinforce")
    ),
    *(
        Fault(
            "gameable_proxy",
            config,
            replace_rewards(letter_e),
            at=25,
            args=(*LONG, *OFTEN),
            kinds=("reward_hacking", "repetition"),
            causes=("reward_model_exploited", "verifier_faulty", "reward_favours_repetition"),
        )
        for config in ("grpo", "rloo")
    ),
    *(
        Fault(
            "rewards_repetition",
            config,
            replace_rewards(repeats),
            at=25,
            args=(*LONG, *OFTEN),
            kinds=("repetition", "reward_hacking"),
            causes=("reward_favours_repetition", "verifier_faulty", "reward_model_exploited"),
        )
        for config in ("grpo", "reinforce")
    ),
    Fault(
        "reward_scale_jumps",
        "reinforce",
        replace_rewards(larger),
        at=30,
        kinds=("reward_variance_jump", "advantage_spike"),
        causes=("reward_scale",),
    ),
    Fault(
        "perturbed_reference",
        "grpo",
        perturb_reference,
        args=(*SHORT, *GRPO_KL),
        kinds=("reference_not_start", "loss_off_at_start"),
        causes=("reference_not_start",),
    ),
    Fault(
        "moving_reference",
        "grpo",
        move_reference,
        args=(*SHORT, *GRPO_KL),
        kinds=("reference_moved",),
        causes=("reference_trained",),
    ),
    *(
        Fault(
            "hidden_dropout", config, drop_out, args=SHORT,
 kinds=("ratio_not_one", "sampler_mismatch"), causes=("dropout_on",)
        )
        for config in ("grpo", "dapo")
    ),
    *(
        Fault("stale_sampler", config, stale_sampler, args=SHORT,
 kinds=("sampler_mismatch",), causes=("stale_sampler_weights",))
        for config in ("grpo", "rloo")
    ),
    *(
        Fault(
            "wrong_temperature",
            config,
            wrong_temperature,
            args=SHORT,
 kinds=("sampler_mismatch",),
            causes=("temperature_mismatch",),
        )
        for config in ("grpo", "reinforce")
    ),
    *(
        Fault(
            "never_stops",
            config,
            never_stop,
            args=SHORT,
 kinds=("never_stops", "all_truncated", "stop_token_untrained"),
            causes=("stop_token_untrained", "stop_id_not_in_generation_config"),
        )
        for config in ("grpo", "rloo")
    ),
    *(
        Fault(
            "short_limit",
            config,
            args=(*SHORT, "--model.sampling.max_new_tokens", "4"),
            kinds=("truncation", "all_truncated", "never_stops"),
            causes=("max_new_tokens_too_small",),
        )
        for config in ("grpo", "rloo")
    ),
    Fault(
        "old_experience",
        "dapo",
        old_experience,
        at=20,
        kinds=("clip_saturation", "ratio_not_one", "sampler_mismatch"),
        causes=("stale_rollouts", "stale_sampler_weights"),
    ),
    Fault(
        "too_many_epochs",
        "grpo",
        args=(*LONG, *EPOCHS, ADAM, "1e-3"),
        kinds=("clip_saturation",),
        causes=("too_many_epochs_per_phase", "learning_rate_too_high"),
    ),
    *(
        Fault(
            "swallowed_updates",
            config,
            swallow_updates,
            args=(*SHORT, ADAM, "1e-6"),
            kinds=("updates_swallowed", "policy_not_moving"),
            causes=("bf16_weights", "learning_rate_too_low"),
        )
        for config in ("grpo", "dpo")
    ),
    *(
        Fault(
            "stepped_on_copies",
            config,
            freeze_weights,
            args=SHORT,
 kinds=("no_update", "updates_swallowed"),
            causes=("nothing_trainable",),
        )
        for config in ("grpo", "sft")
    ),
    *(
        Fault(
            "rate_1000_times",
            config,
            args=(*LONG, ADAM, rate),
            kinds=(
                "entropy_collapse", "entropy_explosion", "loss_diverges", "not_a_number", "gradient_spikes",
                "kl_explosion", "all_truncated", "repetition", "never_stops", "empty_completions", "sign_flipped",
                "truncation", "reward_hacking", "accuracy_at_chance", "reward_model_at_chance", "displacement",
            ),
            causes=("learning_rate_too_high",),
        )
        for config, rate in TOO_HIGH.items()
    ),
    *(
        Fault(
            "rate_a_thousandth",
            config,
            args=(*LONG, ADAM, rate),
            kinds=NOT_LEARNING,
            causes=("learning_rate_too_low", "sft_learning_rate"),
        )
        for config, rate in TOO_LOW.items()
    ),
    *(
        Fault(
            "rate_jumps",
            config,
            scale_learning_rate(60.0),
            at=30,
            kinds=(
                "entropy_collapse", "entropy_explosion", "loss_diverges", "not_a_number", "gradient_spikes",
                "kl_explosion", "all_truncated", "repetition", "never_stops", "empty_completions", "truncation",
                "displacement", "reward_hacking",
            ),
            causes=("learning_rate_too_high",),
        )
        for config in ("grpo", "rloo", "sft", "dpo")
    ),
    *(
        Fault(
            "one_nan", config, not_a_number, at=30, kinds=("not_a_number",),
            causes=("half_precision_overflow", "bad_data", "bad_reward"),
        )
        for config in ("grpo", "sft", "dpo")
    ),
    *(
        Fault("spiky_batches", config, spiky_batches, at=30, kinds=("gradient_spikes",), causes=("bad_batch",))
        for config in ("grpo", "sft")
    ),
    Fault(
        "entropy_bonus",
        "grpo",
        reward_entropy,
        at=25,
        kinds=("entropy_explosion",),
        causes=("entropy_bonus_too_high", "learning_rate_too_high"),
    ),
    Fault(
        "negated_kl",
        "grpo",
        negate_kl,
        args=(*LONG, "--model.beta", "0.5"),
        kinds=("kl_explosion", "kl_estimator_wrong"),
        causes=("kl_estimator_wrong", "kl_sign"),
    ),
    Fault(
        "slow_rewards", "grpo", slow_rewards, at=30, kinds=("throughput_loss",), causes=("reward_slow",)
    ),
]  # fmt: skip
