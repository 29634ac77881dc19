"""What a run without fp32 does to its numbers, done one at a time in a run with it: for the precision ablation."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from lit_rlhf.functional.logprobs import TokenScores, score_hidden


def coarse_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    entropy_grad: bool = False,
) -> TokenScores:
    """Do what `score_hidden` does with a log-softmax in bf16; sums over tokens then are in bf16 too."""
    logps = (linear(hidden, weight, bias).bfloat16() / temperature).log_softmax(-1).gather(-1, targets[:, None])
    with torch.no_grad():
        rest = score_hidden(hidden, weight, targets, temperature=temperature, bias=bias)
    return rest._replace(logps=logps.squeeze(-1))


class CoarseAdamW(torch.optim.Optimizer):
    """AdamW whose weights, gradients and averages are all bf16, as of a model in bf16; the forward stays in fp32.

    The model's fp32 parameters only ever hold values that bf16 has, so what is left out of bf16-true is the rounding
    of activations, which is what makes it slow on a CPU.

    Args:
        params: fp32 parameters.
        lr: Learning rate.
        weight_decay: Of AdamW.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(list(params), {"lr": lr})
        self.coarse = [parameter.detach().bfloat16() for parameter in self._fine()]
        self.inner = torch.optim.AdamW(self.coarse, lr=lr, weight_decay=weight_decay)
        self._copy_back()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Step on the bf16 weights and give them to the model."""
        result = None if closure is None else closure()
        for coarse, fine in zip(self.coarse, self._fine(), strict=True):
            coarse.grad = None if fine.grad is None else fine.grad.bfloat16()
        self.inner.step()
        self._copy_back()
        return result

    def _fine(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @torch.no_grad()
    def _copy_back(self) -> None:
        for coarse, fine in zip(self.coarse, self._fine(), strict=True):
            fine.copy_(coarse)
