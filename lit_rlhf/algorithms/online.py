"""Online algorithms: collect experience when a phase begins, then train on it, one micro-batch per step.

The prompt loader repeats each phase's prompts once per slot, and the rollout happens inside ``training_step``. So
``accumulate_grad_batches``, clipping, precision, strategies, ``max_steps`` and schedules mean what they mean in every
Lightning project, and ``global_step`` counts optimiser updates.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from lit_rlhf.algorithms.base import Algorithm
from lit_rlhf.algorithms.checks import (
    check_online_settings,
    check_prompt_lengths,
    check_whole_phases,
    describe_batches,
)
from lit_rlhf.algorithms.collection import Collector
from lit_rlhf.algorithms.evaluation import Evaluation
from lit_rlhf.algorithms.forwards import Shown, dummy_share, join_shown, recomputed, score_experience
from lit_rlhf.algorithms.ranks import gather_over_ranks
from lit_rlhf.algorithms.settings import as_settings
from lit_rlhf.algorithms.showing import complete_prompts, reward_probes
from lit_rlhf.algorithms.window import Slot, plan_slots
from lit_rlhf.data.seed import global_seed
from lit_rlhf.rewards import RewardFunction, RewardSet
from lit_rlhf.rollout import NativeSampler, NoiseKey, Sampling
from lit_rlhf.rollout.experience import Experience, from_completions
from lit_rlhf.rollout.scored import Row, Scorer
from lit_rlhf_callbacks.errors import UserError


@dataclass(eq=False, repr=False, kw_only=True)
class OnlineAlgorithm(Algorithm):
    """Training on what the policy itself generates, scored by reward functions."""

    rewards: list[str | dict[str, Any] | RewardFunction] = field(default_factory=lambda: ["exact_match"])
    """Reward functions: a built-in's name, ``module.function`` of a file in the current folder, or a mapping with
    ``function``, ``weight`` and the function's settings. Each is logged by itself."""

    reward_timeout_s: float = 60.0
    """How long one call of a reward function may take before the run stops with its name and the prompt ids."""

    reward_on_error: Literal["raise", "skip"] = "raise"
    """What a reward function that raises or returns NaN does: end the run, or lose those samples, counted."""

    eval_reward: str | None = None
    """The reward that defines a right answer for ``eval/pass_at_1`` (score ≥ 0.99); None takes the first one that is no
    reward model."""

    group_size: int = 8
    """Completions per prompt."""

    sampling: Sampling = field(default_factory=Sampling)
    """How training samples are drawn."""

    eval_sampling: Sampling = field(default_factory=Sampling)
    """How held-out samples are drawn."""

    epochs_per_phase: int = 1
    """How often each rollout is gone through (TRL: num_iterations)."""

    windows_per_phase: int = 1
    """Updates per pass over a rollout (TRL: steps_per_generation / gradient_accumulation_steps)."""

    max_tokens_per_forward: int | None = None
    """Padded tokens one forward may hold; a larger micro-batch is computed in parts. Bounds memory, changes nothing
    else."""

    drop_zero_std: bool = False
    """Leave out groups whose completions all got the same reward: no loss, no KL, no denominator."""

    max_refill_rounds: int = 0
    """How many times such groups are replaced by fresh prompts (dynamic sampling) before the phase goes on with what
    it has."""

    mask_truncated: bool = False
    """Leave completions cut by the token limit out of the loss; they still count in their group's statistics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sampling = as_settings(Sampling, self.sampling)
        self.eval_sampling = as_settings(Sampling, self.eval_sampling)
        self.reward_set = RewardSet(self.rewards, timeout_s=self.reward_timeout_s, on_error=self.reward_on_error)
        self.sampler = NativeSampler(self.backbone)
        self.evaluation = Evaluation(self.reward_set, self.eval_reward)
        self.collector = Collector(
            scorer=self._scorer(self.sampling),
            group_size=self.group_size,
            needs_groups=self.needs_groups(),
            drop_zero_std=self.drop_zero_std,
            max_refill_rounds=self.max_refill_rounds,
        )
        self.phase = 0  # experiences collected so far, the same on all ranks
        self.experience: Experience | None = None
        self.slots: list[Slot] = []

    # -- what an algorithm defines --------------------------------------------------------------------------------

    def needs_groups(self) -> bool:
        """Tell whether the advantages compare the completions of one prompt."""
        raise NotImplementedError

    def needs_old_logps(self) -> bool:
        """Tell whether log-probs from before the phase's first update must be kept."""
        return self.epochs_per_phase * self.windows_per_phase > 1

    def score_temperature(self) -> float:
        """Return the sampling temperature."""
        return self.sampling.temperature

    def compute_advantages(self, experience: Experience) -> Tensor:
        """Return the advantages of an experience's tokens, ``[N, T]`` or ``[N, 1]``."""
        raise NotImplementedError

    def window_share(self, batch: Experience, slot: Slot) -> tuple[Tensor, Shown]:
        """Return some rows' share of the window's loss, and detached per-token tensors.

        Args:
            batch: The rows, at least one.
            slot: Holds the window's counts, to divide by.
        """
        raise NotImplementedError

    def measure(self, shown: Shown) -> None:
        """Add an update's metrics from what `window_share` showed."""
        raise NotImplementedError

    # -- Lightning hooks ------------------------------------------------------------------------------------------

    @property
    def num_slots(self) -> int:
        """Micro-batches per phase and rank; the prompt loader repeats each phase this often."""
        return self.epochs_per_phase * self.windows_per_phase * self.trainer.accumulate_grad_batches

    def setup(self, stage: str) -> None:
        """Check the settings against each other and tell the prompt loader how often to repeat a phase."""
        super().setup(stage)
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        self.check_data(data)
        if stage == "fit":
            num_prompts = min(data.prompts_per_phase, len(data.train_rows))
            check_online_settings(self, num_prompts)
            rank_zero_info(describe_batches(self, num_prompts))
            data.num_slots = self.num_slots

    def check_data(self, data: Any) -> None:
        """Refuse prompts that lack a column which rewards need, or leave no room for a completion.

        Args:
            data: The data module, set up.

        Raises:
            UserError: One does, or it is no data module of prompts.
        """
        if not hasattr(data, "extra_prompts"):
            raise UserError(
                f"data: {type(self).__name__} reads its prompts from lit_rlhf.PromptData or a subclass of it, "
                f"got {type(data).__name__}; call fit(model, PromptData(...))"
            )
        rows = [*data.train_rows, *data.eval_rows]
        self.reward_set.check_columns({name for row in rows for name in row})
        check_prompt_lengths(self.backbone.tokenizer, rows, self.backbone.context_length, self.model)

    def on_train_start(self) -> None:
        """Check that phases fit into epochs, then evaluate once before the first update."""
        check_whole_phases(self)
        if self.experience is not None:  # from a checkpoint, which is read before the module is moved to its device
            self.experience = self.experience.to(self.device)
        super().on_train_start()

    def training_step(self, rows: list[Row], batch_idx: int) -> dict[str, Any]:
        """Collect experience at a phase's first slot, then return the loss of one micro-batch."""
        place = batch_idx % self.num_slots
        if place == 0 or self.experience is None:
            self.experience, self.slots = self.collect(rows), []
        experience = self.experience
        if not self.slots:  # also after a resume: the plan follows from the experience
            self.slots = self.plan(experience)
        slot = self.slots[place]
        shares, shown = zip(*(self._part(experience, part, slot) for part in slot.parts), strict=True)
        share = torch.stack(shares).sum()
        self.meter.add_total("loss", share.detach())
        if place == self.num_slots - 1:
            self.experience = None
        metrics = self.close_window() if slot.closes_window else {}
        return {"loss": self.scaled(share), "metrics": metrics, "tokens": join_shown(shown)}

    def validation_step(self, rows: list[Row], batch_idx: int) -> None:
        """Sample held-out prompts once each, with the same noise at every evaluation."""
        key = NoiseKey(global_seed(), "eval", phase=0)
        self.evaluation.add(self._scorer(self.eval_sampling)(rows, range(len(rows)), 1, key))

    def on_validation_epoch_end(self) -> None:
        """Log held-out pass@1 with its standard error and n."""
        self.publish(self.evaluation.compute())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save what a resume in the middle of a phase trains on; it never samples again."""
        super().on_save_checkpoint(checkpoint)
        mine = self.experience.to(torch.device("cpu")).state_dict() if self.experience is not None else None
        checkpoint["phase"] = {
            "number": self.phase,
            "num_slots": self.num_slots,
            "experience": gather_over_ranks(mine),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on in the middle of the saved phase."""
        super().on_load_checkpoint(checkpoint)
        self.phase, saved = checkpoint["phase"]["number"], checkpoint["phase"]["experience"]
        self.experience, self.slots = None, []
        if self._trainer is None or not self._trainer.training:
            return  # loaded to be used or evaluated, not to go on
        if checkpoint["phase"]["num_slots"] != self.num_slots:  # places in the data are counted in micro-batches
            raise UserError(
                f"ckpt_path: saved by a run of {checkpoint['phase']['num_slots']} micro-batches per phase, resumed "
                f"with {self.num_slots}; keep epochs_per_phase × windows_per_phase × accumulate_grad_batches as it was"
            )
        if any(state is not None for state in saved):
            if len(saved) != self.trainer.world_size:
                raise UserError(
                    f"ckpt_path: saved in the middle of a phase by {len(saved)} processes, resumed by "
                    f"{self.trainer.world_size}; use as many, or a checkpoint from a phase's end"
                )
            self.experience = Experience(**saved[self.global_rank])

    # -- a phase --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def collect(self, rows: list[Row]) -> Experience:
        """Turn prompts into experience: sample, score, refill, old and reference log-probs, advantages."""
        with self.timed("time/rollout"):
            source, rank = self.trainer.datamodule, self.global_rank  # type: ignore[attr-defined]
            scored = self.collector.collect(rows, source, self.phase, self.meter, rank, self.trainer.world_size)
        self.seconds["time/reward"] = self.collector.reward_seconds
        self.seconds["time/rollout"] -= self.collector.reward_seconds
        experience = from_completions(scored.completions, scored.order, self.backbone.pad_id)
        experience.rewards = scored.rewards
        if self.mask_truncated:
            experience.trained_mask = ~experience.truncated_mask
        experience = experience.to(self.device)
        with self.timed("time/score"):
            if self.needs_old_logps():
                experience.old_logps = self._score(experience, reference=False)
            if self.needs_reference():
                experience.ref_logps = self._score(experience, reference=True)
        advantages = self.compute_advantages(experience)
        experience.advantages = advantages.expand(experience.input_ids.shape).contiguous()
        self.phase += 1
        return experience

    def plan(self, experience: Experience) -> list[Slot]:
        """Cut an experience into windows and micro-batches; a function of the experience, so a resume cuts alike."""
        rows = experience.trained_mask.nonzero().flatten().tolist()
        slots = plan_slots(
            experience.order[rows].tolist(),
            experience.lengths[rows].tolist(),
            experience.loss_mask.sum(-1)[rows].tolist(),
            group_size=self.group_size,
            num_epochs=self.epochs_per_phase,
            num_windows=self.windows_per_phase,
            num_micro_batches=self.trainer.accumulate_grad_batches,
            max_tokens=self.max_tokens_per_forward,
            key=(global_seed(), self.phase),
        )
        for slot in slots:
            slot.parts = [[rows[place] for place in part] for part in slot.parts]
        return slots

    def _part(self, experience: Experience, part: list[int], slot: Slot) -> tuple[Tensor, Shown]:
        def compute() -> tuple[Tensor, Shown]:
            return self.window_share(experience.rows(part), slot) if part else (dummy_share(self.backbone), {})

        share, shown = recomputed(compute) if len(slot.parts) > 1 else compute()
        if shown:
            self.measure(shown)
        return share, shown

    def _score(self, experience: Experience, *, reference: bool) -> Tensor:
        return score_experience(
            self.backbone,
            experience,
            self.max_tokens_per_forward,
            temperature=self.sampling.temperature,  # of the reference too, or KL = 0 at step 0 would not hold
            reference=reference,
        )

    def _scorer(self, sampling: Sampling) -> Scorer:
        return Scorer(
            sampler=self.sampler, rewards=self.reward_set, tokenizer=self.backbone.tokenizer, sampling=sampling
        )

    def set_token_budget(self, tokens: int) -> None:
        """Let no forward hold more padded tokens from the next phase on (callbacks/README.md)."""
        self.max_tokens_per_forward = tokens

    # -- what a run shows of itself (callbacks/README.md) ---------------------------------------------------------

    def generate(self, prompts: list[Row], sampling: dict[str, Any], event: int) -> list[dict[str, Any]]:
        """Complete prompts for a panel, with noise of their own."""
        return complete_prompts(self.backbone, self.sampler, self.reward_set, prompts, sampling)

    def panel_prompts(self, num: int) -> list[Row]:
        """Return held-out prompts for a panel."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        return list((data.eval_rows or data.train_rows)[:num])

    def reward_probe(self) -> list[dict[str, Any]]:
        """Return one call per reward function that scores known answers, and what each of them is."""
        return reward_probes(self.reward_set, self.trainer.datamodule.train_rows)  # type: ignore[attr-defined]

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained and how it is sampled."""
        return {**super().run_facts(), "sampling": asdict(self.sampling), "eval_sampling": asdict(self.eval_sampling)}
