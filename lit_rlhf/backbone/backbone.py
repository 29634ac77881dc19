"""The policy, its reference and its tokenizer, given by name and plain settings."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import Cache, PreTrainedModel

from lit_rlhf.backbone.adapters import LoRA, adapters_off, add_lora
from lit_rlhf.backbone.checkpoint import keep_frozen_out_of_checkpoints
from lit_rlhf.backbone.heads import Head, check_head, load_scorer, score_positions
from lit_rlhf.backbone.loading import (
    find_eos_ids,
    load_config,
    load_generation_config,
    load_start_policy,
    load_tokenizer,
    source_chain,
    zero_dropout,
)
from lit_rlhf.backbone.reference import Reference, evaluation_mode, frozen_copy
from lit_rlhf.backbone.saving import save_policy
from lit_rlhf.backbone.scoring import head_matches, keeps_documents_apart, score_rows
from lit_rlhf.backbone.sharding import shard_backbone
from lit_rlhf.functional.logprobs import TokenScores
from lit_rlhf_callbacks.errors import UserError

_NO_LIMIT = 2**30


class Backbone(nn.Module):
    """A causal language model to train, the frozen model it is measured against, and their tokenizer.

    The constructor finds the model and reads its tokenizer and configuration, so that a wrong name fails at once and
    in one line; :meth:`load` reads the weights. The policy is in train mode with every dropout at zero: ratio = 1
    and KL = 0 hold before the first update.

    Args:
        model: ``builtin:tiny``, a run directory, a local Hugging Face folder (model or PEFT adapter), or a hub id.
        lora: Train low-rank adapters instead of all weights.
        reference: ``copy`` keeps a frozen copy of the start policy; ``adapter_off`` uses the policy with its adapters
            off (needs ``lora``, costs no memory); ``none`` keeps none.
        dropout: Keep the model's dropout; only sensible for supervised fine-tuning.
        gradient_checkpointing: Recompute each layer in the backward pass; None means where there is CUDA (and the
            architecture can).
        head: ``score`` puts one number per token in the place of the lm head: a reward model, see :meth:`score_head`.

    Raises:
        UserError: The model cannot be found or used, ``adapter_off`` is asked for without ``lora``, or a reference
            with a score head.
    """

    policy: nn.Module
    """What is trained: a Hugging Face model, or a PEFT model around one."""
    reference: PreTrainedModel | None
    """The frozen copy, if there is one."""
    head: nn.Linear | None
    """From the last hidden state to one number, in a reward model; the policy then has no lm head."""
    unsaved_names: frozenset[str]
    """Keys of the ``state_dict`` that no checkpoint holds: the reference's, and with LoRA the frozen base's."""
    scores_from_hidden: bool
    """Whether the lm head is applied here, in chunks; see :func:`~lit_rlhf.backbone.scoring.head_matches`."""
    start_hash: str
    """Hash of the weights the run started from; equal to :func:`~lit_rlhf.backbone.weights.weight_hash` of the start
    policy, unless that was made by merging an adapter."""

    def __init__(
        self,
        model: str,
        *,
        lora: LoRA | None = None,
        reference: Reference = "none",
        dropout: bool = False,
        gradient_checkpointing: bool | None = None,
        head: Head = "none",
    ) -> None:
        super().__init__()
        if head != "none" and reference != "none":
            raise UserError(f"reference '{reference}' is of no use to a reward model: set reference 'none'")
        if reference == "adapter_off" and lora is None:
            raise UserError("reference 'adapter_off' needs adapters to turn off: set lora, or use reference 'copy'")
        self.name = model
        self.lora = lora
        self.reference_kind = reference
        self.dropout = dropout
        self.gradient_checkpointing = gradient_checkpointing
        self.sources = source_chain(model)
        self.base_name = model if model.startswith("builtin:") else self.sources[-1]
        self.config = load_config(self.sources[0])
        check_head(head, model, self.sources, self.config)
        self.head_kind = head
        self.tokenizer = load_tokenizer(self.sources)
        self.generation_config = load_generation_config(self.sources, self.config)
        self.eos_ids = find_eos_ids(self.tokenizer, self.generation_config)
        pad_id = self.tokenizer.pad_token_id
        self.pad_id: int = self.eos_ids[0] if pad_id is None else pad_id
        self.context_length: int = getattr(self.config.get_text_config(), "max_position_embeddings", None) or _NO_LIMIT
        self.reference = None
        self.head = None
        self.is_loaded = False
        self.is_sharded = False

    def load(self) -> None:
        """Read the weights and make the reference; does nothing the second time.

        Raises:
            UserError: The weights are missing or incomplete, or a LoRA target does not exist.
        """
        if self.is_loaded:
            return
        if self.head_kind == "none":
            start, self.start_hash = load_start_policy(self.sources)
        else:
            start, self.head, self.start_hash = load_scorer(self.sources, self.config)
        if not self.dropout:
            zero_dropout(start)
        if self.reference_kind == "copy":
            self.reference = frozen_copy(start)
        self.policy = start
        if self.lora is not None:
            self.policy = add_lora(start, self.lora, self.base_name, has_lm_head=self.head is None)
        self.policy.train()
        self.scores_from_hidden = self.head is not None or head_matches(self.hf_model)
        if not self.scores_from_hidden:
            rank_zero_warn(f"{self.name}: the lm head is not the last step to the logits; scoring holds all logits")
        if self.gradient_checkpointing is None:
            self.gradient_checkpointing = torch.cuda.is_available() and start.supports_gradient_checkpointing
        if self.gradient_checkpointing:
            start.activation_checkpointing_enable({"use_reentrant": False})
        keep_frozen_out_of_checkpoints(self)
        self.is_loaded = True

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard policy and reference over ranks with FSDP2; does nothing the second time. Comes before the optimiser.

        Args:
            mesh: One dimension, or the mesh of Lightning's ``ModelParallelStrategy``.

        Raises:
            UserError: The mesh asks for tensor parallelism.
        """
        if self.is_sharded:
            return
        shard_backbone(self, mesh)
        self.is_sharded = True

    @property
    def hf_model(self) -> PreTrainedModel:
        """The policy's Hugging Face model, also when PEFT is around it (adapters then stay active)."""
        return self.policy if self.lora is None else self.policy.get_base_model()  # type: ignore[operator, return-value]

    def train(self, mode: bool = True) -> "Backbone":
        """Set train or eval mode; the reference stays in eval mode always."""
        super().train(mode)
        if self.reference is not None:
            self.reference.eval()
        return self

    def score_tokens(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        score_mask: Tensor,
        *,
        position_ids: Tensor | None = None,
        temperature: float = 1.0,
        entropy_grad: bool = False,
        reference: bool = False,
    ) -> TokenScores:
        """Score the marked tokens of each row.

        Args:
            input_ids: ``[B, T]`` token ids, padded on either side.
            attention_mask: ``[B, T]``, non-zero on real tokens.
            score_mask: ``[B, T]`` bool, True on the tokens to score; never on a row's first token.
            position_ids: ``[B, T]``, where several documents share a row: from 0 in each, pads too. Needs
                :meth:`keeps_documents_apart`.
            temperature: The sampling temperature; logits are divided by it, so that ratio = 1 holds at any.
            entropy_grad: Whether gradients flow through the entropy (an entropy bonus needs them).
            reference: Score under the reference instead of the policy; never builds a graph.

        Returns:
            ``TokenScores`` of ``[B, T]``, aligned to the token scored, zero where not marked.

        Raises:
            ValueError: ``reference`` is asked for and there is none.
        """
        if not reference:
            return score_rows(
                self.hf_model,
                input_ids,
                attention_mask,
                score_mask,
                position_ids=position_ids,
                temperature=temperature,
                entropy_grad=entropy_grad,
                from_hidden=self.scores_from_hidden,
            )
        if self.reference_kind == "none":
            raise ValueError("this backbone has no reference: build it with reference='copy' or 'adapter_off'")
        model = self.hf_model if self.reference is None else self.reference
        with torch.no_grad(), adapters_off(self.policy) if self.reference is None else nullcontext():
            return score_rows(
                model,
                input_ids,
                attention_mask,
                score_mask,
                position_ids=position_ids,
                temperature=temperature,
                from_hidden=self.scores_from_hidden,
            )

    def keeps_documents_apart(self) -> bool:
        """Check that documents which share a row do not see each other; before the weights are sharded."""
        return keeps_documents_apart(self.hf_model, from_hidden=self.scores_from_hidden)

    def add_stop_ids(self, ids: Sequence[int]) -> list[int]:
        """Let more tokens end a completion, here and in the ``eos_token_id`` of saved folders.

        Returns:
            Those that did not before.
        """
        new = [token for token in dict.fromkeys(ids) if token not in self.eos_ids]
        self.eos_ids = (*self.eos_ids, *new)
        return new

    def score_head(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Give every token a number: a reward model's score of the text up to it.

        Args:
            input_ids: ``[B, T]`` token ids, padded on either side.
            attention_mask: ``[B, T]``, non-zero on real tokens.

        Returns:
            ``[B, T]`` fp32, also under autocast; meaningless on pads.

        Raises:
            ValueError: This backbone has no score head.
        """
        if self.head is None:
            raise ValueError("this backbone has no score head: build it with head='score'")
        return score_positions(self.hf_model, self.head, input_ids, attention_mask)

    def next_token_logits(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, cache: Cache
    ) -> Tensor:
        """Logits of the token after each row, for a sampler; call it under ``torch.no_grad``.

        The policy runs in eval mode: a layer in train mode that is checkpointed would drop the cache.

        Args:
            input_ids: ``[B, t]`` the tokens that are not in the cache yet.
            attention_mask: ``[B, S]``, non-zero on real tokens, over the cache and the new tokens.
            position_ids: ``[B, t]`` positions of the new tokens.
            cache: Keys and values of the tokens before; updated in place.

        Returns:
            ``[B, V]`` fp32, of the last of the ``t`` positions.
        """
        with evaluation_mode(self.policy) if self.policy.training else nullcontext():
            output = self.hf_model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1].float()

    def checkpoint_facts(self) -> dict[str, str]:
        """Say which weights the run started from: its checkpoints hold this instead of the reference."""
        return {"source": self.name, "start_hash": self.start_hash}

    def check_checkpoint_facts(self, facts: dict[str, str]) -> None:
        """Refuse to resume against other start weights than the run began with.

        Args:
            facts: What :meth:`checkpoint_facts` returned then.

        Raises:
            UserError: The weights at the source have another hash now.
        """
        if facts["start_hash"] != self.start_hash:
            raise UserError(
                f"model '{self.name}' is not what this run started from ('{facts['source']}', weight hash "
                f"{facts['start_hash']}; now {self.start_hash}): give the original weights or start a new run"
            )

    def save_model(self, folder: str | Path, *, merge_adapter: bool = True) -> None:
        """Write the policy as an ordinary Hugging Face folder, without changing it; every rank must call this.

        Args:
            folder: Made if it is not there.
            merge_adapter: With LoRA, write full weights with the adapter merged in; False writes the adapter alone,
                with the name of its base.

        Raises:
            UserError: The adapter alone is asked for, but its base is itself a merged adapter and nowhere on disk.
        """
        save_policy(self, Path(folder), merge_adapter=merge_adapter)
