"""Generating and scoring with a Hugging Face model inside a module that offers no protocol."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from lit_rlhf_callbacks.scoring import token_logps

MODEL_NAMES = ("model", "policy")


def find_language_model(pl_module: LightningModule) -> Any | None:
    """Return the module's Hugging Face model: its attribute ``model`` or ``policy``, else its only such child."""
    named = [getattr(pl_module, name, None) for name in MODEL_NAMES]
    found = [model for model in named if _is_language_model(model)]
    if found:
        return found[0]
    children = [child for child in pl_module.children() if _is_language_model(child)]
    return children[0] if len(children) == 1 else None


def find_tokenizer(trainer: Trainer, pl_module: LightningModule) -> Any | None:
    """Return the attribute ``tokenizer`` or ``processing_class`` of the module or its data module."""
    for owner in (pl_module, trainer.datamodule):  # type: ignore[attr-defined]
        for name in ("tokenizer", "processing_class"):
            if getattr(owner, name, None) is not None:
                return getattr(owner, name)
    return None


def score_rows(model: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Score every token, one row at a time so that only one row's logits are held.

    Args:
        model: A Hugging Face causal language model.
        input_ids: ``[B, T]``.
        attention_mask: ``[B, T]``.

    Returns:
        ``[B, T]`` log-probs in nats, fp32, aligned to the token scored.
    """
    rows = [
        token_logps(model(input_ids=ids[None], attention_mask=mask[None]).logits, ids[None])
        for ids, mask in zip(input_ids, attention_mask, strict=True)
    ]
    return torch.cat(rows)


class RowGenerator:
    """A function like the protocol's ``generate`` that uses a Hugging Face model.

    Prompts are generated one by one, each from a seed of its own, so that no completion depends on its neighbours.
    Call it inside `observing`: it sets the global seed.

    Args:
        model: A Hugging Face causal language model.
        tokenizer: Its tokenizer, with a chat template if prompts are lists of messages.
        device: Where the model is.
    """

    def __init__(self, model: Any, tokenizer: Any, device: torch.device) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device
        ids = model.generation_config.eos_token_id
        ids = ids if ids is not None else tokenizer.eos_token_id
        self.stop_ids: set[int] = {ids} if isinstance(ids, int) else set(ids or ())

    def __call__(self, prompts: list[dict[str, Any]], sampling: dict[str, Any], event: int) -> list[dict[str, Any]]:
        """Complete each prompt once."""
        return [self._complete(prompt, sampling) for prompt in prompts]

    def _complete(self, prompt: dict[str, Any], sampling: dict[str, Any]) -> dict[str, Any]:
        ids = self._prompt_ids(prompt["prompt"])
        given = torch.tensor([ids], device=self.device)
        pad_id = self.tokenizer.pad_token_id
        torch.manual_seed(sampling["seed"] * 1_000_003 + prompt["prompt_id"])
        output = self.model.generate(
            input_ids=given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=sampling["max_new_tokens"],
            eos_token_id=sorted(self.stop_ids) or None,
            pad_token_id=pad_id if pad_id is not None else min(self.stop_ids, default=None),
            use_cache=True,
            **_noise_settings(sampling),
        )
        new = output[0, len(ids) :].tolist()
        return {
            "prompt_id": prompt["prompt_id"],
            "prompt": self.tokenizer.decode(ids),
            "completion": self.tokenizer.decode(new),
            "num_tokens": len(new),
            "finish": "stop" if new and new[-1] in self.stop_ids else "length",
        }

    def _prompt_ids(self, prompt: str | list[dict[str, str]]) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        text = self.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])  # the template has written them


def _noise_settings(sampling: dict[str, Any]) -> dict[str, Any]:
    names = ("temperature", "top_k", "top_p")
    if sampling["temperature"] == 0:
        return {"do_sample": False, **dict.fromkeys(names)}
    return {"do_sample": True, **{name: sampling[name] for name in names}}


def _is_language_model(module: Any) -> bool:
    return isinstance(module, nn.Module) and hasattr(module, "config") and callable(getattr(module, "generate", None))
