"""What one contender's process does: make a network ready, check its answer, time it; see `benchmarks.networks`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

import tvmconv.torch
from tvmconv.accuracy import relative_error
from tvmconv.errors import VerificationError
from tvmconv.measuring.timing import sample_call
from tvmconv.torch.calls import ByKernel

OURS = "tvmconv"
EAGER = "pytorch"
CONTENDERS = (OURS, EAGER, "torch.compile", "openvino")
# Of the relative L2 error: what Winograd in f32 adds up to over a network, and no lesser type stays below.
ALLOWED_ERROR = 1e-4


@dataclass(frozen=True)
class Task:
    """Time `contender` on `network`, a module of `benchmarks.models`, for about `seconds`.

    `bundle` has our kernels; `expected` is the file of PyTorch's answer, which the task of `EAGER` writes; `parts` asks for
    the time of each part of ours, alone.
    """

    network: str
    contender: str
    bundle: str
    expected: str
    seconds: float
    parts: bool = False

    def __str__(self) -> str:
        return f"{self.contender} on {self.network}"


@dataclass(frozen=True)
class Answer:
    """Seconds a call took, sample by sample; and those that our kernels take alone, and all else."""

    samples: list[float]
    kernels: float = 0.0
    others: float = 0.0
    by_torch: list[str] = field(default_factory=list)


def load(network: str) -> tuple[nn.Module, Any]:
    """Return a network for inference, and an input: the same in every process."""
    module = import_module(f"{__package__}.models.{network}")
    torch.manual_seed(0)
    model = module.model().eval()
    return model, module.example().contiguous(memory_format=torch.channels_last)


def measure(task: Task) -> Answer:
    """Time what `task` says.

    Raises
    ------
    VerificationError
        If the answer is not PyTorch's.
    """
    with torch.inference_mode():
        call, fast, data = _ready(task.network, task.contender, task.bundle, task.expected)
        if not task.parts:
            return Answer(sample_call(call, task.seconds))
        parts = Parts(fast)
        parts.run(data)
        kernels, others = (_time_all(calls, task.seconds) for calls in (parts.kernels, parts.others))
        rows = [str(row.layer) for row in tvmconv.torch.report(fast) if row.why]
        return Answer([], kernels, others, rows)


@lru_cache(maxsize=1)
def _ready(network: str, contender: str, bundle: str, expected: str) -> tuple[Callable[[], Any], Any, Any]:
    """Return the call, whose answer is right, the network that it calls, and the input."""
    model, data = load(network)
    if contender == OURS:
        model = tvmconv.torch.optimize(model, data, bundle=bundle)
    elif contender == "openvino":
        return _checked(_openvino(model, data), expected), model, data
    else:
        model = model.to(memory_format=torch.channels_last)
    called: Any = model
    if contender == "torch.compile":
        from torch._inductor import config

        config.freezing = True
        called = torch.compile(model)
    if contender == EAGER:
        np.save(expected, model(data).numpy())
    return _checked(lambda: called(data), expected), model, data


def _openvino(model: nn.Module, data: Any) -> Callable[[], Any]:
    import openvino as ov

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = ov.convert_model(model, example_input=data, input=list(data.shape))
    hints = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = ov.Core().compile_model(converted, "CPU", hints).create_infer_request()
    request.set_input_tensor(ov.Tensor(data.contiguous().numpy()))

    def call() -> Any:
        request.start_async()
        request.wait()
        return request.get_output_tensor().data

    return call


def _checked(call: Callable[[], Any], expected: str) -> Callable[[], Any]:
    error = relative_error(np.asarray(call()), np.load(expected))
    if not error <= ALLOWED_ERROR:
        raise VerificationError(f"the relative L2 error is {error:.2g}, allowed is {ALLOWED_ERROR:.2g}")
    return call


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


def _time_all(calls: list[Callable[[], Any]], seconds: float) -> float:
    """Return the median time of calls one after the other: each finds the caches as in the network."""

    def every() -> None:
        for call in calls:
            call()

    return median(sample_call(every, seconds))
