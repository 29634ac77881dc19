"""Calling ``training_step`` once more without anybody noticing."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lit_rlhf_callbacks.rng_state import get_rng_state, set_rng_state

_PLAIN = (bool, int, float, str, type(None), list, dict, set, tuple, Tensor)
Call = tuple[tuple[Any, ...], dict[str, Any]]


@contextmanager
def replaced(owner: object, name: str, new: Any) -> Iterator[None]:
    """Put another attribute on an instance for a while; what it had of its own comes back."""
    put_back = replace(owner, name, new)
    try:
        yield
    finally:
        put_back()


def replace(owner: object, name: str, new: Any) -> Callable[[], None]:
    """Put another attribute on an instance, and return what puts back what it had of its own."""
    had, old = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, new)
    return lambda: setattr(owner, name, old) if had else delattr(owner, name)


@contextmanager
def logging_into(pl_module: LightningModule, calls: list[Call] | None) -> Iterator[None]:
    """Collect what a module logs, or drop it, instead of showing it to the trainer; ``log_dict`` goes through ``log``.

    Args:
        pl_module: the module.
        calls: gets the arguments of each call; None drops them.
    """

    def log(*args: Any, **kwargs: Any) -> None:
        if calls is not None:
            calls.append((args, kwargs))

    with replaced(pl_module, "log", log):
        yield


def remember(pl_module: LightningModule, with_own: bool = True) -> Callable[[], None]:
    """Return a function that puts back what a forward may change besides the loss, as it is now.

    Buffers are written in place, since a compiled or wrapped model may hold them.

    Args:
        pl_module: the module.
        with_own: the module's own numbers, lists and dicts too, besides buffers and metric objects; they may be long.
    """
    buffers = [(buffer, buffer.detach().clone()) for buffer in pl_module.buffers()]
    metrics = [(m, copy.deepcopy(m.__getstate__())) for m in pl_module.modules() if hasattr(type(m), "metric_state")]
    names = set(vars(pl_module))
    own = {name: value for name, value in vars(pl_module).items() if with_own and name not in _NOT_OWN}
    plain = {name: _copied(value) for name, value in own.items() if isinstance(value, _PLAIN)}

    @torch.no_grad()
    def put_back() -> None:
        for buffer, value in buffers:
            buffer.copy_(value)
        for metric, state in metrics:
            metric.__setstate__(copy.deepcopy(state))
        if with_own:
            for name in set(vars(pl_module)) - names:
                del vars(pl_module)[name]
            vars(pl_module).update(plain)

    return put_back


@contextmanager
def leaving_no_trace(pl_module: LightningModule) -> Iterator[None]:
    """Put back gradients, random states and all that `remember` holds, and drop what is logged."""
    put_back, rng = remember(pl_module), get_rng_state(pl_module.device)
    gradients = [(parameter, parameter.grad) for parameter in pl_module.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with logging_into(pl_module, None):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        put_back()
        set_rng_state(rng, pl_module.device)


_NOT_OWN = set(vars(torch.nn.Module()))  # parameters, buffers and submodules are no plain attributes


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.copy(value)
