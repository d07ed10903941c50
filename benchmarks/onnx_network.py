"""What one contender's process does: make an ONNX network ready, check its answer, time it; see `benchmarks.onnx_networks`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvmconv.accuracy import relative_error
from tvmconv.errors import VerificationError

from .machine import CLOCKS
from .rest import take_turn

OURS, ONNXRUNTIME, OPENVINO = CONTENDERS = ("tvmconv", "onnxruntime", "openvino")
# Of the relative L2 error; onnxruntime's own sigmoid is 3e-3 off where it is near zero, which is the detector's answer.
ALLOWED_ERROR = 5e-3
# The newest that PyTorch's exporter writes; it has GELU as one node.
OPSET = 20


@dataclass(frozen=True)
class Task:
    """Time `contender` on the network in `folder` by a clock of `CLOCKS` for about `seconds`; or, of ours, each operator (`parts`)."""

    contender: str
    folder: str
    seconds: float
    threads: int
    clock: str = "wall"
    parts: bool = False

    def __str__(self) -> str:
        return f"{self.contender} on {Path(self.folder).name}"


@dataclass(frozen=True)
class Answer:
    """Seconds a call took, sample by sample; and by operator: its name, whether it is ours, and its seconds."""

    samples: list[float] = field(default_factory=list)
    operators: list[tuple[str, bool, float]] = field(default_factory=list)


def export_model(task: tuple[str, str]) -> tuple[int, ...]:
    """Write a network of `benchmarks.models` as an ONNX file, and return its input's shape; the task is its name and the file."""
    import torch

    from .models.weights import load

    name, path = task
    model, data = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (data.contiguous(),), path, opset_version=OPSET, dynamo=False)
    return tuple(data.shape)


def measure(task: Task) -> Answer:
    """Time what `task` says.

    Raises
    ------
    VerificationError
        If the answer is not onnxruntime's.
    """
    call, operators = ready(task.contender, task.folder, task.threads)
    if task.parts:
        return Answer(operators=[(each.name, each.ours, each.seconds) for each in operators(task.seconds)])
    return Answer(take_turn(call, task.seconds, CLOCKS[task.clock]))


@lru_cache(maxsize=1)
def ready(contender: str, folder: str, threads: int) -> tuple[Callable[[], Any], Callable[[float], Any]]:
    """Return the call, after checking its answer, and a function that times our operators."""
    path, data = Path(folder), np.load(Path(folder) / "input.npy")
    expected = path / "expected.npy"
    operators: Callable[[float], Any] = lambda seconds: []  # noqa: E731
    if contender == OURS:
        from tvmconv.runtime.networks.network import load_network

        network = load_network(path / "network.so")
        arrays = {network.inputs[0].name: data}
        call, operators = network.call(arrays), lambda seconds: network.operators(arrays, seconds)
        answer = _flat(network(**arrays).values())
    elif contender == OPENVINO:
        call = _openvino(str(path / "model.onnx"), data, threads)
        answer = _flat(call())
    else:
        call = _onnxruntime(str(path / "model.onnx"), data, threads)
        answer = _flat(call())
        np.save(expected, answer)
    error = relative_error(answer, np.load(expected))
    if not error <= ALLOWED_ERROR:
        raise VerificationError(f"the relative L2 error is {error:.2g}, allowed is {ALLOWED_ERROR:.2g}")
    return call, operators


def _onnxruntime(path: str, data: Any, threads: int) -> Callable[[], Any]:
    from .peers.onnxruntime import open_session

    session = open_session(path, threads)
    feeds = {session.get_inputs()[0].name: data}
    return lambda: session.run(None, feeds)


def _openvino(path: str, data: Any, threads: int) -> Callable[[], Any]:
    import openvino as ov

    from .peers.openvino import call_of, compile_network

    request = compile_network(path, "f32", threads).create_infer_request()
    request.set_input_tensor(ov.Tensor(data))

    run = call_of(request)

    def call() -> Any:
        run()
        return [each.data for each in request.output_tensors]

    return call


def _flat(answer: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return all outputs of a network in one array."""
    return np.concatenate([np.ravel(each) for each in answer])
