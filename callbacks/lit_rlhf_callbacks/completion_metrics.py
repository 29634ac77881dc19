"""What a micro-batch's completions look like: lengths, empty answers, repetition, and how reward goes with length."""

import torch
from torch import Tensor

Sums = dict[str, tuple[Tensor, Tensor]]  # name: sum, count
NGRAM = 4


def completion_sums(tokens: dict[str, Tensor], mask: Tensor) -> Sums:
    """Measure the rows that have a completion.

    Args:
        tokens: As `token_metrics` takes them.
        mask: ``[B, T]`` bool, the completions' tokens; at least one is set.

    Returns:
        Sums and counts by metric name; parts of correlations and spreads have a leading underscore.
    """
    rows = mask.any(-1)
    mask = mask[rows]
    lengths = mask.sum(-1)
    num_rows = torch.as_tensor(len(lengths))
    sums: Sums = {
        "completions/mean_length": (lengths.sum(), num_rows),
        "completions/empty_ratio": ((lengths <= 1).sum(), num_rows),
    }
    if "input_ids" in tokens:
        sums["completions/repetition"] = repetition(tokens["input_ids"][rows], mask)
    if "advantages" in tokens:
        advantages = _per_token(tokens["advantages"][rows], mask).float().where(mask, 0.0)
        sums["advantages/frac_nonzero"] = advantages.ne(0).any(-1).sum(), num_rows
        means = advantages.sum(-1) / lengths
        sums["advantages/mean"] = means.sum(), num_rows
        sums["_advantages/square"] = means.square().sum(), num_rows
    if "rewards" in tokens and tokens["rewards"].dim() == 1:
        sums |= _with_length(tokens["rewards"][rows].float(), lengths.float(), _groups(tokens, rows))
    return sums


def repetition(input_ids: Tensor, mask: Tensor, n: int = NGRAM) -> tuple[Tensor, Tensor]:
    """Count n-grams that stood before in the same completion (seq-rep-n of Welleck et al. 2019, arXiv 1908.04319).

    Args:
        input_ids: ``[B, T]``.
        mask: ``[B, T]`` bool, the tokens that count; an n-gram counts when all of its tokens do.
        n: Tokens per n-gram.

    Returns:
        How many n-grams repeat an earlier one, and how many there are.

    Example:
        >>> import torch
        >>> loop, word = torch.tensor([[1, 2, 3] * 3]), torch.tensor([[2, 1, 3, 1, 3, 1, 4, 5, 6]])
        >>> [(int(r), int(c)) for r, c in (repetition(ids, torch.ones_like(ids).bool()) for ids in (loop, word))]
        [(3, 6), (0, 6)]
    """
    if input_ids.shape[1] < n:
        nothing = torch.zeros((), device=mask.device)
        return nothing, nothing
    hashed = torch.zeros_like(input_ids[:, n - 1 :], dtype=torch.int64)
    counted = torch.ones_like(mask[:, n - 1 :])
    width = hashed.shape[1]
    for place in range(n):
        hashed = hashed * 1_000_003 + input_ids[:, place : place + width] + 1  # wraps around, as hashes may
        counted = counted & mask[:, place : place + width]
    hashed = hashed.masked_fill(~counted, torch.iinfo(torch.int64).min)
    ordered, places = hashed.sort(dim=-1)  # equal n-grams become neighbours: a run of r holds r − 1 repeats
    counts = counted.gather(-1, places)
    repeats = (ordered[:, 1:] == ordered[:, :-1]) & counts[:, 1:] & counts[:, :-1]
    return repeats.sum(), counted.sum()


def correlation(values: dict[str, float]) -> float | None:
    """Return Pearson's correlation of reward and length from its summed parts; None where either never varied."""
    scale = values["_reward_length/rewards"] * values["_reward_length/lengths"]
    return values["_reward_length/both"] / scale**0.5 if scale > 0 else None


def _with_length(rewards: Tensor, lengths: Tensor, groups: Tensor) -> Sums:
    known = rewards.isfinite()
    rewards, lengths, groups = rewards[known], lengths[known], groups[known]
    one = torch.as_tensor(1)
    x, y = _centred(rewards, groups), _centred(lengths, groups)
    return {
        "_reward_length/both": ((x * y).sum(), one),
        "_reward_length/rewards": (x.square().sum(), one),
        "_reward_length/lengths": (y.square().sum(), one),
    }


def _groups(tokens: dict[str, Tensor], rows: Tensor) -> Tensor:
    """Number each row's prompt; where no prompt has two rows, all rows are one group."""
    everyone = torch.zeros(int(rows.sum()), dtype=torch.int64, device=rows.device)
    if "prompt_ids" not in tokens:
        return everyone
    _, numbers = tokens["prompt_ids"][rows].unique(return_inverse=True)
    return numbers if len(numbers) > numbers.max() + 1 else everyone


def _centred(values: Tensor, groups: Tensor) -> Tensor:
    totals = torch.zeros(len(values), device=values.device).index_add(0, groups, values)
    sizes = torch.zeros(len(values), device=values.device).index_add(0, groups, torch.ones_like(values))
    centred = values - (totals / sizes.clamp_min(1))[groups]
    return centred.where(centred.abs() > 1e-6 * values.abs(), 0.0)  # equal values leave rounding behind, not spread


def _per_token(values: Tensor, mask: Tensor) -> Tensor:
    """Spread ``[B]`` or ``[B, 1]`` over tokens; ``[B, T]`` stays."""
    return (values if values.dim() == 2 else values[:, None]).expand(mask.shape)
