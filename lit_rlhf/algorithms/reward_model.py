"""Reward models: one number for a completion, learned from pairs, rankings, outcomes or judged steps.

=============  ========================================  ==================================  ================
class          learns from                               loss                                paper
=============  ========================================  ==================================  ================
BradleyTerry   chosen and rejected                       −log σ(r_c − r_r − margin)          arXiv 2203.02155
PlackettLuce   K completions, best first                 −Σ log softmax over those below     Plackett 1975
OutcomeReward  one completion that is right or wrong     cross-entropy at each token         arXiv 2110.14168
ProcessReward  one completion with a label for each step cross-entropy at each step's end    arXiv 2305.20050
=============  ========================================  ==================================  ================
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from lit_rlhf.algorithms.base import adamw
from lit_rlhf.algorithms.calibration import CalibrationMeter
from lit_rlhf.algorithms.meter import WindowMeter
from lit_rlhf.algorithms.offline import OfflineAlgorithm, Shown
from lit_rlhf.algorithms.scored_panel import panel_rows, scored_rows
from lit_rlhf.backbone.heads import Head, is_reward_model, last_real
from lit_rlhf.data.batches import Batch
from lit_rlhf.data.builtin_rows import Kind
from lit_rlhf.functional.reward_losses import bradley_terry_loss, outcome_loss, plackett_luce_loss, process_loss


@dataclass(eq=False, repr=False, kw_only=True)
class RewardModel(OfflineAlgorithm):
    """A model that ends in a score: what reward models share. Use one of the subclasses.

    The score of a completion is the head's number at its last token. A saved one is read by transformers as
    ``AutoModelForSequenceClassification``, and here as the reward function ``reward_model``.
    """

    optimizer: OptimizerCallable = field(default_factory=lambda: adamw(2e-4))  # type: ignore[assignment]
    """What steps on the trainable parameters; ten times the learning rate of SFT, since the head is new."""

    head: ClassVar[Head] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calibration = CalibrationMeter()

    def step0_values(self) -> dict[str, float]:
        """Return what nearly holds before the first update: a new head scores everything near zero."""
        value = self.init_loss()
        return {} if value is None or is_reward_model(self.backbone.config) else {"reward_loss": value}

    def init_loss(self) -> float | None:
        """Return the loss where every score is zero; None: it depends on the data."""
        return math.log(2)

    def run_facts(self) -> dict[str, Any]:
        """Say what is being trained, for callbacks that check or record it."""
        is_new_head = not is_reward_model(self.backbone.config)
        return {**super().run_facts(), "stage": "reward_model", "is_new_head": is_new_head}

    def publish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Log already reduced values, the distance of the two means where no margin is known, and return them."""
        for prefix in ("", "eval/"):
            means = [metrics.get(f"{prefix}rewards/{which}") for which in ("chosen", "rejected")]
            if f"{prefix}margin" not in metrics and means[0] is not None and means[1] is not None:
                metrics = {**metrics, f"{prefix}margin": means[0] - means[1]}
        return super().publish(metrics)

    def on_validation_epoch_end(self) -> None:
        """Log the held-out metrics, and how far probabilities are from frequencies."""
        error = self.calibration.compute()
        self.publish({**self.eval_meter.compute(), **({} if error is None else {"eval/calibration_error": error})})

    def panel_prompts(self, num: int) -> list[dict[str, Any]]:
        """Return held-out examples for a panel."""
        return panel_rows(self.trainer.datamodule.eval_examples, num, self.backbone.tokenizer)  # type: ignore[attr-defined]

    def generate(self, prompts: list[dict[str, Any]], sampling: dict[str, Any], event: int) -> list[dict[str, Any]]:
        """Score the completions of the panel's examples: a reward model writes none."""

        def score(tensors: Shown) -> Tensor:
            return self.rewards({name: value.to(self.device) for name, value in tensors.items()})

        examples = self.trainer.datamodule.eval_examples  # type: ignore[attr-defined]
        return scored_rows(prompts, examples, self.backbone.tokenizer, score)

    # -- scores ---------------------------------------------------------------------------------------------------

    def score_positions(self, tensors: Shown) -> Tensor:
        """Return the head's number at every token, ``[S, T]``."""
        return self.backbone.score_head(tensors["input_ids"], tensors["attention_mask"])

    def rewards(self, tensors: Shown) -> Tensor:
        """Return each completion's score, ``[S]``: the head's number at its last token."""
        return last_real(self.score_positions(tensors), tensors["attention_mask"])

    def score_rewards(self, tokens: Shown) -> Tensor:
        """Return each completion's score under the current weights, ``[S]``, as ``rewards`` shows it."""
        with torch.no_grad():
            return self.rewards(tokens)

    def show(self, tensors: Shown, **values: Tensor) -> Shown:
        """Return what callbacks and `measure` read, detached."""
        shared = {name: tensors[name] for name in ("input_ids", "attention_mask")}
        return {**shared, "completion_mask": tensors["score_mask"], **{k: v.detach() for k, v in values.items()}}

    def measure_rewards(self, meter: WindowMeter, prefix: str, rewards: Tensor, is_good: Tensor) -> None:
        """Add mean and extremes of N scores, and the means of the good and of the bad ones."""
        meter.add_mean(f"{prefix}mean_reward", rewards.sum(), rewards.numel())
        meter.add_min(f"{prefix}min_reward", rewards)
        meter.add_max(f"{prefix}max_reward", rewards)
        meter.add_masked(f"{prefix}rewards/chosen", rewards, is_good)
        meter.add_masked(f"{prefix}rewards/rejected", rewards, ~is_good)

    def measure_gaps(self, meter: WindowMeter, prefix: str, gaps: Tensor) -> None:
        """Add what N comparisons say, each by the better one's score minus the worse one's."""
        meter.add_mean(f"{prefix}accuracy", share_right(gaps).sum(), len(gaps))
        meter.add_mean(f"{prefix}margin", gaps.sum(), len(gaps))
        if prefix:
            self.calibration.add_pairs(gaps)

    def measure_probabilities(self, meter: WindowMeter, prefix: str, logits: Tensor, labels: Tensor) -> None:
        """Add what N judgements of single texts say, each by its logit and its label, 1 for good."""
        is_good = labels > 0.5
        accuracy = share_right(torch.where(is_good, logits, -logits))
        meter.add_mean(f"{prefix}accuracy", accuracy.sum(), len(logits))
        self.measure_rewards(meter, prefix, logits.sigmoid(), is_good)
        if prefix:
            self.calibration.add(logits.sigmoid(), is_good)


def share_right(gaps: Tensor) -> Tensor:
    """Count a positive gap as right, a negative one as wrong and a tie as half.

    >>> share_right(torch.tensor([2.0, 0.0, -1.0]))
    tensor([1.0000, 0.5000, 0.0000])
    """
    return 0.5 * (gaps.sign() + 1)


@dataclass(eq=False, repr=False, kw_only=True)
class BradleyTerry(RewardModel):
    """Chosen above rejected: the classical reward model."""

    center_coef: float = 0.0
    """Weight of (r_c + r_r)², which keeps scores around zero; 0.01 is usual (arXiv 2312.09244)."""

    data_kind: ClassVar[Kind] = "paired"

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of pair losses over the window's pairs; a column ``margin`` enters if there is one."""
        rewards = self.rewards(tensors)  # [2B]
        losses = bradley_terry_loss(rewards[0::2], rewards[1::2], tensors.get("label"), center_coef=self.center_coef)
        shown = self.show(
            tensors, rewards=rewards, chosen_mask=torch.arange(len(rewards), device=rewards.device) % 2 == 0
        )
        return losses.sum() / batch.num_examples, shown

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add accuracy, margin and scores, and the loss without margin and centring, which compares across runs."""
        rewards = shown["rewards"]
        is_chosen = torch.arange(len(rewards), device=rewards.device) % 2 == 0
        losses = bradley_terry_loss(rewards[0::2], rewards[1::2])
        meter.add_mean(f"{prefix}reward_loss", losses.sum(), len(losses))
        self.measure_rewards(meter, prefix, rewards, is_chosen)
        self.measure_gaps(meter, prefix, rewards[0::2] - rewards[1::2])


@dataclass(eq=False, repr=False, kw_only=True)
class PlackettLuce(RewardModel):
    """A whole ranking: each completion above all that rank below it. Of two, it is `BradleyTerry`."""

    data_kind: ClassVar[Kind] = "ranked"

    def init_loss(self) -> float | None:
        """Return None: it is log K! and K may differ."""
        return None

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of ranking losses over the window's rankings."""
        rewards = self.rewards(tensors)  # [S]
        losses = plackett_luce_loss(*as_rankings(rewards, tensors["example"]))
        example = tensors["example"]
        is_best = torch.cat([torch.ones_like(example[:1], dtype=torch.bool), example[1:] != example[:-1]])
        return losses.sum() / batch.num_examples, self.show(
            tensors, rewards=rewards, example=example, chosen_mask=is_best
        )

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add loss, scores (the first of a ranking counts as chosen), and accuracy and margin over all its pairs."""
        rewards = shown["rewards"]
        scores, rank_mask = as_rankings(rewards, shown["example"])
        losses = plackett_luce_loss(scores, rank_mask)
        meter.add_mean(f"{prefix}reward_loss", losses.sum(), len(losses))
        is_first = torch.zeros_like(rank_mask)
        is_first[:, 0] = True
        self.measure_rewards(meter, prefix, scores[rank_mask], is_first[rank_mask])
        is_pair = (rank_mask[:, :, None] & rank_mask[:, None, :]).triu(1)  # [B, K, K]
        self.measure_gaps(meter, prefix, (scores[:, :, None] - scores[:, None, :])[is_pair])


def as_rankings(rewards: Tensor, example: Tensor) -> tuple[Tensor, Tensor]:
    """Lay out scores as one row per ranking.

    Args:
        rewards: ``[S]``, a ranking's together and best first.
        example: ``[S]``, which ranking each belongs to, from 0.

    Returns:
        Scores ``[B, K]`` and which of them there are ``[B, K]``.

    >>> as_rankings(torch.tensor([3.0, 2.0, 1.0, 5.0]), torch.tensor([0, 0, 0, 1]))[0]
    tensor([[3., 2., 1.],
            [5., 0., 0.]])
    """
    sizes = torch.bincount(example)  # [B]
    rank_mask = torch.arange(int(sizes.max()), device=example.device) < sizes[:, None]
    return torch.zeros_like(rank_mask, dtype=rewards.dtype).masked_scatter(rank_mask, rewards), rank_mask


@dataclass(eq=False, repr=False, kw_only=True)
class OutcomeReward(RewardModel):
    """Right or wrong, told at every token of the completion; its probability at the last token is the score."""

    data_kind: ClassVar[Kind] = "unpaired"

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of token losses over the window's completion tokens."""
        mask = tensors["score_mask"]
        logits = self.score_positions(tensors)
        losses = outcome_loss(logits, tensors["label"], mask)
        last_logits = last_real(logits, tensors["attention_mask"])
        shown = self.show(
            tensors,
            losses=losses,
            logits=last_logits,
            rewards=last_logits.sigmoid(),
            label=tensors["label"],
            chosen_mask=tensors["label"] > 0.5,
        )
        return losses.sum() / batch.num_tokens, shown

    def score_rewards(self, tokens: Shown) -> Tensor:
        """Return the probability of being right, ``[S]``."""
        return super().score_rewards(tokens).sigmoid()

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add the loss per token, and accuracy, margin and probabilities at the last one."""
        meter.add_masked(f"{prefix}reward_loss", shown["losses"], shown["completion_mask"])
        self.measure_probabilities(meter, prefix, shown["logits"], shown["label"])


@dataclass(eq=False, repr=False, kw_only=True)
class ProcessReward(RewardModel):
    """Right or wrong so far, told at the last token of each step."""

    data_kind: ClassVar[Kind] = "stepwise"

    def window_share(self, tensors: Shown, batch: Batch) -> tuple[Tensor, Shown]:
        """Return the sum of step losses over the window's steps."""
        logits, mask = self.score_positions(tensors), tensors["step_mask"]
        losses = process_loss(logits, tensors["step_labels"], mask)
        shown = self.show(
            tensors,
            losses=losses,
            logits=logits,
            rewards=last_real(logits, tensors["attention_mask"]).sigmoid(),
            step_labels=tensors["step_labels"],
        )
        return losses.sum() / batch.num_tokens, {**shown, "completion_mask": mask}

    def score_rewards(self, tokens: Shown) -> Tensor:
        """Return the probability that the last step is right, ``[S]``."""
        return super().score_rewards(tokens).sigmoid()

    def measure(self, meter: WindowMeter, shown: Shown, prefix: str) -> None:
        """Add loss, accuracy, margin and probabilities, all over steps."""
        mask = shown["completion_mask"]
        meter.add_masked(f"{prefix}reward_loss", shown["losses"], mask)
        self.measure_probabilities(meter, prefix, shown["logits"][mask], shown["step_labels"][mask])
