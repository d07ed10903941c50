"""Functions of numbers that know no proxies, in a trace: those that make tensors, such as `torch.zeros`, `max` and `min`."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

_NAMES: tuple[tuple[Any, str], ...] = (
    *((torch, name) for name in (
        "arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "tensor", "zeros",
    )),
    (builtins, "max"), (builtins, "min"),
)  # fmt: skip
_LOCK = RLock()  # they are the same for all threads


@contextmanager
def recorded() -> Iterator[None]:
    """Let these functions be nodes of a graph where a trace gives them what stands for a number, a type or a device."""
    with _LOCK:
        kept = [(module, name, getattr(module, name)) for module, name in _NAMES]
        try:
            for module, name, function in kept:
                setattr(module, name, _recording(function))
            yield
        finally:
            for module, name, function in kept:
                setattr(module, name, function)


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = next((each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, fx.Proxy)), None)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return call
