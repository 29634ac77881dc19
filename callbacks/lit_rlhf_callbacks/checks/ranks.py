"""Whether ranks share the work and nothing else: other data, the same weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lit_rlhf_callbacks.checks.result import failed, passed
from lit_rlhf_callbacks.symptoms.finding import CheckResult

NUM_TENSORS = 16
MAX_ELEMENTS = 2**14  # of each


def check_ranks(
    data_hashes: Sequence[int | None], weight_hashes: Sequence[int | None], *, step: int = 0
) -> CheckResult:
    """Check that no two ranks had the same window and that all have the same weights.

    Args:
        data_hashes: One per rank, of its window's tokens (`hash_tensor`); None where it had none.
        weight_hashes: One per rank, of a few weights (`hash_weights`); None where weights are sharded.
        step: Updates made.
    """
    name = "ranks"
    shown = [value for value in data_hashes if value is not None]
    if len(set(shown)) < len(shown):
        text = f"{len(shown) - len(set(shown)) + 1} of {len(shown)} ranks trained on the very same rows"
        return failed(name, step, "ranks_disagree", "duplicate_data", text)
    weights = {value for value in weight_hashes if value is not None}
    if len(weights) > 1:
        text = f"{len(weight_hashes)} ranks have {len(weights)} different sets of weights after the update"
        return failed(name, step, "ranks_disagree", "ranks_desynchronised", text)
    return passed(name, step, f"{len(data_hashes)} ranks have other data and the same weights")


def hash_tensor(tensor: Tensor) -> int:
    """Return a number that changes with any element's value and place."""
    values = tensor.reshape(-1)
    bits = values.view(torch.int32) if values.element_size() == 4 else values
    bits = bits.to(torch.int64) if not bits.is_floating_point() else bits.float().view(torch.int32).to(torch.int64)
    places = torch.arange(1, len(bits) + 1, device=bits.device)
    return int((bits * places).sum() ^ len(bits))


def hash_weights(module: nn.Module) -> int:
    """Hash a few of the trained weights, spread over the model."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    chosen = trained[:: max(1, len(trained) // NUM_TENSORS)]
    return sum(hash_tensor(parameter.detach().reshape(-1)[:MAX_ELEMENTS].float()) for parameter in chosen)
