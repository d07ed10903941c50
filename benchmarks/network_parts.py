"""Our network in parts: each of its operators as a call with what the network gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import tvmconv.torch

KERNELS, OTHERS = "kernels", "others"


class Parts(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs our network, and keeps each of its parts as a call with what it is given there: our kernels, and all else."""

    def __init__(self, fast: Any) -> None:
        super().__init__(fast)
        self.kernels: list[Callable[[], Any]] = []
        self.others: list[Callable[[], Any]] = []

    def run_node(self, n: Any) -> Any:
        """Run one node, and keep it."""
        if n.op not in ("call_module", "call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        parts, call = self.others, partial(getattr(self, n.op), n.target, args, kwargs)
        layer = self.fetch_attr(n.target) if n.op == "call_module" else None
        if isinstance(layer, tvmconv.torch.FusedConvolution):
            found = layer.calls.addressed(args[0], kwargs.get("residual"))
            if found is not None:
                parts = self.kernels
                call = partial(found, args[0], layer.bias, kwargs.get("residual"))
        parts.append(call)
        return call()


def calls_of(fast: Any, data: Any) -> dict[str, Callable[[], None]]:
    """Return what calls all our kernels, one after the other, and what calls all else: each call finds the network's caches."""
    parts = Parts(fast)
    parts.run(data)
    return {KERNELS: partial(_call_all, parts.kernels), OTHERS: partial(_call_all, parts.others)}


def _call_all(calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        call()
