"""Our network in parts: each of its operators as a call with what the network gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

import tvmconv.torch
from tvmconv.measuring.timing import sample_call
from tvmconv.torch.calls import ByKernel


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
            (found,) = layer.calls.found.values()
            if isinstance(found, ByKernel):
                parts = self.kernels
                call = partial(found.call, args[0], layer.bias, kwargs.get("residual"))
        parts.append(call)
        return call()


def time_parts(fast: Any, data: Any, seconds: float) -> tuple[float, float]:
    """Return the seconds that our kernels take, one after the other, and those of all else."""
    parts = Parts(fast)
    parts.run(data)
    return _time_all(parts.kernels, seconds), _time_all(parts.others, seconds)


def _time_all(calls: list[Callable[[], Any]], seconds: float) -> float:
    """Return the median time of calls one after the other: each finds the caches as in the network."""

    def every() -> None:
        for call in calls:
            call()

    return median(sample_call(every, seconds))
