"""Functions that take no proxies, made traceable: those that make tensors, such as `torch.zeros`, and `max`, `min`, `int`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import fx
from torch.fx.proxy import TraceError
from torch.utils import _pytree as pytree

_NAMES: tuple[tuple[Any, str], ...] = (
    *((torch, name) for name in (
        "arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "tensor", "zeros",
    )),
    (builtins, "max"), (builtins, "min"),
)  # fmt: skip
_LOCK = RLock()  # they are the same for all threads


@contextmanager
def recorded(namespaces: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Let these functions be nodes of a graph where a trace gives them what stands for a number, a type or a device.

    `namespaces` are the globals of the code that calls `int` of such. It is a type, which others look at, too.
    """
    with _LOCK:
        kept = [(module, name, getattr(module, name)) for module, name in _NAMES]
        try:
            for module, name, function in kept:
                setattr(module, name, _recording(function))
            for names in namespaces:
                names["int"] = _Int
            yield
        finally:
            for module, name, function in kept:
                setattr(module, name, function)
            for names in namespaces:
                del names["int"]


class AsInt(TraceError):  # type: ignore[misc]
    """Code with these globals calls `int` of what stands for a number."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__("int() is called of a number that is computed")
        self.namespace = namespace


class _AsIntIs(type):
    """Python's `int`, but for what stands for numbers."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _recording(int)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, int)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, int)


class _Int(metaclass=_AsIntIs):
    pass


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = next((each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, fx.Proxy)), None)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return call
