"""Generation with the policy itself: no second engine, no second copy of the weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from lit_rlhf.backbone import Backbone
from lit_rlhf.backbone.reference import evaluation_mode
from lit_rlhf.rollout.inverse_cdf import draw_tokens
from lit_rlhf.rollout.kv_cache import RowCache
from lit_rlhf.rollout.noise import uniforms
from lit_rlhf.rollout.protocol import Completion, NoiseKey, Prompt
from lit_rlhf.rollout.sampling import Sampling
from lit_rlhf_callbacks.errors import UserError

# Dropping rows copies the others' keys and values once, and makes every later step cheaper.
WORTH_DROPPING = 0.25

# Layers whose past is keys and values; windows are cut by the model's own masks.
LAYER_TYPES = {"full_attention", "sliding_attention", "chunked_attention"}


@dataclass(frozen=True)
class _Row:
    """One completion to be made."""

    prompt: Prompt
    sample: int
    limit: int
    """The most tokens it may have."""


class NativeSampler:
    """Completes prompts with a backbone's policy (see `protocol.Sampler`).

    Each prompt is read once and its keys and values repeated for its group; completions that have ended leave the
    batch. A completion's tokens depend on its prompt, the weights, the settings and its noise key; not on the other
    rows, except where rounding of the logits moves a token across a boundary of the cumulative distribution.

    Args:
        backbone: The policy, its end tokens and its context length.
        compaction: Let ended completions leave the batch.
        max_rows: Completions decoded at a time; more are done in turns.

    Raises:
        UserError: The model has layers that keep something else than keys and values.
    """

    def __init__(self, backbone: Backbone, compaction: bool = True, max_rows: int = 512) -> None:
        self.backbone = backbone
        self.compaction = compaction
        self.max_rows = max_rows
        other_layers = set(getattr(backbone.config.get_text_config(), "layer_types", None) or ()) - LAYER_TYPES
        if other_layers:
            raise UserError(
                f"{backbone.name}: the native sampler keeps keys and values only, and this model has layers of type "
                f"{', '.join(sorted(other_layers))}; choose a model with attention layers"
            )

    def generate(self, prompts: list[Prompt], group_size: int, sampling: Sampling, key: NoiseKey) -> list[Completion]:
        """Draw ``group_size`` completions of every prompt.

        Train flags and the global random state are left as they were. With sharded weights every rank must call this
        together, also one without prompts.

        Args:
            prompts: What to complete; none is fine.
            group_size: Completions per prompt.
            sampling: How tokens are drawn.
            key: Which random numbers to use.

        Returns:
            ``len(prompts) * group_size`` completions, by prompt in the order given, then by sample.

        Raises:
            UserError: A prompt is empty or leaves no room in the model's context, or the policy is broken.
        """
        rows = [
            _Row(prompt, sample, min(self._room(prompt), sampling.max_new_tokens))
            for prompt in prompts
            for sample in range(group_size)
        ]
        # Prompts of like length in one turn: less padding. The sort is stable, so a group stays together, and a turn
        # holds whole groups if one fits.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].prompt.ids))
        turn_size = self.max_rows - self.max_rows % group_size or self.max_rows
        completions: dict[int, Completion] = {}
        # The backbone would change flags by itself, but once per token.
        with torch.no_grad(), evaluation_mode(self.backbone):
            for start in range(0, len(rows), turn_size):
                turn = order[start : start + turn_size]
                completions.update(zip(turn, self._complete([rows[i] for i in turn], sampling, key), strict=True))
            self._keep_other_ranks_company()
        return [_checked(completions[i]) for i in range(len(rows))]

    def _room(self, prompt: Prompt) -> int:
        """How many tokens fit after a prompt."""
        room = self.backbone.context_length - len(prompt.ids)
        if not prompt.ids:
            raise UserError(f"prompt {prompt.prompt_id} has no tokens; give it at least one (a BOS token, say)")
        if room < 1:
            raise UserError(
                f"prompt {prompt.prompt_id} has {len(prompt.ids)} tokens and the model's context "
                f"{self.backbone.context_length}: no room for a completion; shorten or drop the prompt"
            )
        return room

    def _complete(self, rows: list[_Row], sampling: Sampling, key: NoiseKey) -> list[Completion]:
        """Make the completions of one turn together."""
        device = next(self.backbone.parameters()).device
        eos_ids = torch.tensor(self.backbone.eos_ids, dtype=torch.long, device=device)
        limits = torch.tensor([row.limit for row in rows], device=device)
        num_steps = max(row.limit for row in rows)
        tokens_made = torch.full((len(rows), num_steps), -1, device=device)  # [R, L]
        logps_made = torch.zeros(len(rows), num_steps, dtype=torch.float32, device=device)  # [R, L]
        batch, logits = self._start(rows, num_steps, key, device)
        for step in range(num_steps):
            tokens, logps = draw_tokens(logits, batch.uniforms[:, step], sampling)
            tokens_made[batch.rows, step], logps_made[batch.rows, step] = tokens, logps
            batch.ended_mask |= torch.isin(tokens, eos_ids) | (limits[batch.rows] == step + 1)
            num_rows, num_ended = len(tokens), int(batch.ended_mask.sum())  # the one wait for the device per token
            if num_ended == num_rows:
                break
            if self.compaction and num_ended >= WORTH_DROPPING * num_rows:
                alive = (~batch.ended_mask).nonzero()[:, 0]
                tokens, batch = tokens[alive], batch.select(alive)
            logits = self._step(tokens, batch)
        return _collect(rows, tokens_made, logps_made, limits, eos_ids)

    def _start(self, rows: list[_Row], num_steps: int, key: NoiseKey, device: torch.device) -> tuple["_Batch", Tensor]:
        """Read each prompt once; return the batch of all rows and the logits of their first tokens, ``[R, V]``."""
        prompts = list({id(row.prompt): row.prompt for row in rows}.values())
        number = {id(prompt): i for i, prompt in enumerate(prompts)}
        source = torch.tensor([number[id(row.prompt)] for row in rows], device=device)  # [R]
        width = max(len(prompt.ids) for prompt in prompts)
        pad = self.backbone.pad_id
        input_ids = torch.tensor([[pad] * (width - len(p.ids)) + p.ids for p in prompts], device=device)  # [P, T]
        lengths = torch.tensor([len(prompt.ids) for prompt in prompts], device=device)  # [P]
        mask = torch.arange(width + num_steps, device=device) >= width - lengths[:, None]  # [P, T + L]
        position_ids = (torch.arange(width, device=device) - (width - lengths[:, None])).clamp(min=0)  # [P, T]
        cache = RowCache(max_length=width + num_steps)
        logits = self._forward(input_ids, mask[:, :width], position_ids, cache)
        noise = [
            uniforms(key.seed, key.purpose, key.phase, key.round, row.prompt.prompt_id, row.sample, num_steps)
            for row in rows
        ]
        cache.batch_select_indices(source)
        batch = _Batch(
            cache=cache,
            attention_mask=mask[source],
            positions=lengths[source],
            uniforms=torch.stack(noise).to(device),
            rows=torch.arange(len(rows), device=device),
            ended_mask=torch.zeros(len(rows), dtype=torch.bool, device=device),
        )
        return batch, logits[source]

    def _step(self, tokens: Tensor, batch: "_Batch") -> Tensor:
        """Read one token of every row ``[R]``; return the logits of the next, ``[R, V]``."""
        length = batch.cache.get_seq_length() + 1
        # A row that has ended but stays must not run out of the position table.
        position_ids = batch.positions.clamp(max=self.backbone.context_length - 1)[:, None]
        batch.positions = batch.positions + 1
        return self._forward(tokens[:, None], batch.attention_mask[:, :length], position_ids, batch.cache)

    def _forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, cache: RowCache) -> Tensor:
        """Run the policy; with sharded weights only when every rank does."""
        self._any_rank_working(True)
        return self.backbone.next_token_logits(input_ids, attention_mask, position_ids, cache)

    def _keep_other_ranks_company(self) -> None:
        """Run the policy on nothing for as long as another rank needs this rank's weights."""
        device = next(self.backbone.parameters()).device
        token = torch.full((1, 1), self.backbone.pad_id, device=device)
        while self._any_rank_working(False):
            self.backbone.next_token_logits(token, torch.ones_like(token), torch.zeros_like(token), RowCache(1))

    def _any_rank_working(self, working: bool) -> bool:
        """Whether any rank still generates, asked by all ranks before each forward when weights are sharded."""
        if not (self.backbone.is_sharded and dist.is_available() and dist.is_initialized()):
            return False
        flag = torch.tensor(int(working), device=next(self.backbone.parameters()).device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)


@dataclass
class _Batch:
    """The rows being decoded; R of them."""

    cache: RowCache
    attention_mask: Tensor  # [R, T + L]
    positions: Tensor  # [R] of the next token read
    uniforms: Tensor  # [R, L]
    rows: Tensor  # [R] which completion of the turn
    ended_mask: Tensor  # [R]

    def select(self, index: Tensor) -> "_Batch":
        """Keep some rows only; the cache is shared and changes in place."""
        self.cache.batch_select_indices(index)
        return _Batch(
            self.cache,
            self.attention_mask[index],
            self.positions[index],
            self.uniforms[index],
            self.rows[index],
            self.ended_mask[index],
        )


def _collect(rows: Sequence[_Row], tokens: Tensor, logps: Tensor, limits: Tensor, eos_ids: Tensor) -> list[Completion]:
    """Cut each row of ``tokens`` and ``logps`` ``[R, L]`` after its first EOS or at its limit."""
    is_eos = torch.isin(tokens, eos_ids)
    first_eos = torch.where(is_eos.any(dim=-1), is_eos.int().argmax(dim=-1), limits)
    lengths, stopped = torch.minimum(first_eos + 1, limits).tolist(), (first_eos < limits).tolist()
    return [
        Completion(
            prompt_id=row.prompt.prompt_id,
            sample=row.sample,
            prompt_ids=row.prompt.ids,
            ids=row_tokens[:length],
            logps=row_logps[:length],
            finish="stop" if row_stopped else "length",
        )
        for row, row_tokens, row_logps, length, row_stopped in zip(
            rows, tokens.tolist(), logps.tolist(), lengths, stopped, strict=True
        )
    ]


def _checked(completion: Completion) -> Completion:
    """Refuse what a policy made that has diverged."""
    if not math.isfinite(sum(completion.logps)):
        raise UserError(
            f"prompt {completion.prompt_id}: the policy's logits are not finite; its weights are broken or the run has "
            "diverged: go back to the last good checkpoint with a lower learning rate"
        )
    return completion
