"""What one rollout taught: tokens, rewards, advantages and old log-probs, as the updates of a phase need them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from lit_rlhf.rollout.protocol import Completion


@dataclass(kw_only=True)
class Experience:
    """The samples of one phase on this rank, right-padded; N rows, T tokens.

    Every ``[N, T]`` tensor is aligned to the token it scores.
    """

    input_ids: Tensor  # [N, T] prompt then completion
    prompt_lengths: Tensor  # [N]
    lengths: Tensor  # [N] prompt and completion together
    prompt_ids: Tensor  # [N] which prompt: the row number in the prompt set
    order: Tensor  # [N] the sample's place in the phase, the same however many ranks share it
    truncated_mask: Tensor  # [N] stopped by the token limit
    sampler_logps: Tensor  # [N, T] as the sampler saw them
    rewards: Tensor  # [N]
    advantages: Tensor  # [N, T]
    trained_mask: Tensor  # [N] False: counts in no loss
    old_logps: Tensor | None = None  # [N, T] of the learner before the phase's first update
    ref_logps: Tensor | None = None  # [N, T]

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def attention_mask(self) -> Tensor:
        """Real tokens, ``[N, T]``; from lengths, because pad may be a real token's id."""
        return torch.arange(self.input_ids.shape[1], device=self.lengths.device) < self.lengths[:, None]

    @property
    def completion_mask(self) -> Tensor:
        """Tokens of the completion, ``[N, T]``."""
        steps = torch.arange(self.input_ids.shape[1], device=self.lengths.device)
        return self.attention_mask & (steps >= self.prompt_lengths[:, None])

    @property
    def loss_mask(self) -> Tensor:
        """Tokens that count in the loss, ``[N, T]``."""
        return self.completion_mask & self.trained_mask[:, None]

    def rows(self, index: Sequence[int] | Tensor) -> "Experience":
        """Return some of the rows, padded only to the longest among them."""
        index = torch.as_tensor(index, dtype=torch.long, device=self.lengths.device)
        width = int(self.lengths[index].max()) if len(index) else 1
        chosen = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                value = value[index]
                chosen[field.name] = value[:, :width] if value.dim() == 2 else value
        return Experience(**chosen)

    def to(self, device: torch.device) -> "Experience":
        """Return the same experience on another device."""
        return Experience(**{name: value.to(device) for name, value in self.state_dict().items()})

    def state_dict(self) -> dict[str, Tensor]:
        """Return plain tensors, for a checkpoint."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def from_completions(completions: Sequence[Completion], order: Sequence[int], pad_id: int) -> Experience:
    """Lay completions out as rows; rewards and advantages are still zero.

    Args:
        completions: What the sampler made, N of them.
        order: Each one's place in the phase, ``[N]``.
        pad_id: Fills the right end of short rows; never looked at again.

    Returns:
        The experience, on the CPU.
    """
    num_rows = len(completions)
    width = max((len(c.prompt_ids) + len(c.ids) for c in completions), default=1)
    input_ids = torch.full((num_rows, width), pad_id)
    sampler_logps = torch.zeros(num_rows, width, dtype=torch.float32)
    for row, completion in enumerate(completions):
        start, end = len(completion.prompt_ids), len(completion.prompt_ids) + len(completion.ids)
        input_ids[row, :end] = torch.tensor(completion.prompt_ids + completion.ids)
        sampler_logps[row, start:end] = torch.tensor(completion.logps, dtype=torch.float32)

    def per_row(values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    return Experience(
        input_ids=input_ids,
        prompt_lengths=per_row([len(c.prompt_ids) for c in completions], torch.long),
        lengths=per_row([len(c.prompt_ids) + len(c.ids) for c in completions], torch.long),
        prompt_ids=per_row([c.prompt_id for c in completions], torch.long),
        order=per_row(list(order), torch.long),
        truncated_mask=per_row([c.finish == "length" for c in completions], torch.bool),
        sampler_logps=sampler_logps,
        rewards=torch.zeros(num_rows, dtype=torch.float32),
        advantages=torch.zeros(num_rows, width, dtype=torch.float32),
        trained_mask=torch.ones(num_rows, dtype=torch.bool),
    )
