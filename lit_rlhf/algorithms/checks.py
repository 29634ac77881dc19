"""Settings that would train wrongly, or not at all, without an error: refused in one line before the first update."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from transformers import PreTrainedTokenizerBase

from lit_rlhf.rollout.scored import Row, tokenise
from lit_rlhf_callbacks.errors import UserError

if TYPE_CHECKING:
    from lit_rlhf.algorithms.online import OnlineAlgorithm


def check_prompt_lengths(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], context_length: int, model: str
) -> None:
    """Refuse prompts that leave no room for a completion.

    Args:
        tokenizer: The policy's.
        rows: Every prompt of the run.
        context_length: Tokens the model can see.
        model: How the user calls it.

    Raises:
        UserError: If a prompt is as long as the context, or cannot be rendered.
    """
    if not rows:
        return
    overhead = len(tokenise(tokenizer, rows[:1])[0].ids)  # at least what the template adds to one message
    # a token is at least a byte of text, so most prompts need not be rendered to know that they fit
    suspects = [row for row in rows if _num_bytes(row["prompt"], overhead) >= context_length]
    for prompt in tokenise(tokenizer, suspects):
        if len(prompt.ids) >= context_length:
            raise UserError(
                f"data.prompts: prompt {prompt.prompt_id} has {len(prompt.ids)} tokens, but '{model}' sees "
                f"{context_length}; shorten or remove it, or take a model with a longer context"
            )


def _num_bytes(prompt: str | Sequence[dict[str, str]], per_message: int) -> int:
    texts = [prompt] if isinstance(prompt, str) else [str(message.get("content", "")) for message in prompt]
    return sum(2 * len(text.encode()) + per_message for text in texts)  # twice: normalising may lengthen text


def refuse_unused(module: Any, names: Sequence[str]) -> None:
    """Refuse settings that would be read by nobody: left in a config when its class was changed, perhaps.

    Args:
        module: An algorithm, a dataclass.
        names: Fields that its class has no use for.

    Raises:
        UserError: If one of them is not at the class's default.
    """
    for field in fields(module):
        if field.name in names and getattr(module, field.name) != field.default:
            raise UserError(f"model.{field.name}: {type(module).__name__} does not use it; leave it out")


def check_online_settings(module: "OnlineAlgorithm", num_prompts: int) -> None:
    """Refuse a phase that cannot be cut as asked, and a group too small for its statistics.

    Args:
        module: The algorithm, attached to its trainer.
        num_prompts: Prompts of a whole rollout, over all ranks.

    Raises:
        UserError: With the numbers, and what to change.
    """
    if module.reference == "precomputed":
        raise UserError(
            "model.reference: precomputed log-probs exist for given data only, and here the policy writes it; use auto"
        )
    if module.group_size < 2 and module.needs_groups():
        raise UserError(
            f"model.group_size: {type(module).__name__} compares the completions of a prompt, so it needs at least 2, "
            f"got {module.group_size}; raise it or use Reinforce or ReinforcePlusPlus"
        )
    if module.group_size < 2 and module.drop_zero_std:
        raise UserError(
            "model.drop_zero_std: a group of one completion always has one reward, so nothing would be trained; set "
            f"drop_zero_std: false, or raise model.group_size ({module.group_size}) to at least 2"
        )
    if module.sampling.temperature == 0:
        raise UserError(
            "model.sampling.temperature: 0 makes all completions of a prompt the same; set it to 1 (0 is for "
            "model.eval_sampling)"
        )
    trainer = module.trainer
    num_samples = num_prompts * module.group_size
    num_pieces = module.windows_per_phase * trainer.accumulate_grad_batches * trainer.world_size
    if num_samples < num_pieces:
        raise UserError(
            f"data.prompts_per_phase: {num_prompts} prompts × model.group_size ({module.group_size}) = {num_samples} "
            f"samples are fewer than model.windows_per_phase ({module.windows_per_phase}) × "
            f"trainer.accumulate_grad_batches ({trainer.accumulate_grad_batches}) × ranks ({trainer.world_size}) = "
            f"{num_pieces}; sample more or cut less"
        )
    if module.sampling.top_p < 1.0 or module.sampling.top_k > 0:
        rank_zero_warn(
            "model.sampling: top_p < 1 or top_k > 0 samples from another distribution than the one that is trained; "
            "keep them for model.eval_sampling"
        )


def check_whole_phases(module: "OnlineAlgorithm") -> None:
    """Refuse epochs that end in the middle of a phase, where Lightning would step on part of a window.

    Args:
        module: The algorithm, its loaders already made.

    Raises:
        UserError: With the number of micro-batches that a phase has.
    """
    num_batches = module.trainer.num_training_batches
    if num_batches % module.num_slots:
        raise UserError(
            f"trainer.limit_train_batches: {num_batches} micro-batches are no whole number of phases; set a multiple "
            f"of {module.num_slots} (epochs_per_phase × windows_per_phase × accumulate_grad_batches)"
        )


def describe_batches(module: "OnlineAlgorithm", prompts_per_phase: int) -> str:
    """Say a run's three batch numbers: micro-batch, accumulation and effective batch."""
    trainer = module.trainer
    num_samples = prompts_per_phase * module.group_size
    per_window = num_samples / module.windows_per_phase
    micro_batch = per_window / trainer.accumulate_grad_batches / trainer.world_size
    return (
        f"each phase: {prompts_per_phase} prompts × {module.group_size} completions; each update: micro-batch "
        f"{micro_batch:g} × accumulation {trainer.accumulate_grad_batches} × {trainer.world_size} rank(s) = "
        f"{per_window:g} completions"
    )
