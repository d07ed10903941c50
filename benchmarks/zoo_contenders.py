"""One contender's process for a network of the zoo: load its files, check its answer, time it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tvmconv.accuracy import relative_error
from tvmconv.errors import TvmconvError, VerificationError

from .network_runs import Samples
from .peers import UnsupportedError
from .rest import take_turn

OURS, OPENVINO, ONNXRUNTIME = "tvmconv", "openvino", "onnxruntime"
# Ours without the algebra of fixed filters.
WRITTEN = "as_written"
# PyTorch by the memory format of its data.
PYTORCH, PYTORCH_NXC, INDUCTOR = "pytorch", "pytorch_nxc", "torch_compile"
# By a peer's name, the package whose version is recorded; tables have them in this order.
PEERS = {
    PYTORCH: "torch",
    PYTORCH_NXC: "torch",
    INDUCTOR: "torch",
    OPENVINO: "openvino",
    ONNXRUNTIME: "onnxruntime",
}
# By the names that PyTorch has.
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
INPUTS, EXPECTED = "inputs.npz", "expected.npz"
MODELS = {OPENVINO: "openvino.xml", ONNXRUNTIME: "model.onnx"}
# Of each output's relative L2 error: in f32, what Winograd adds up to over a network, and no lesser type stays below; in bf16,
# twice the error of PyTorch in bf16 where that is more: some networks lose more than others.
ALLOWED_ERROR = {"f32": 1e-4, "bf16": 5e-2}


@dataclass(frozen=True)
class Task:
    """Time `contender` on the network in `folder` for about `seconds`; or, of ours, each operator (`parts`)."""

    network: str
    contender: str
    dtype: str
    folder: str
    threads: int
    seconds: float
    parts: bool = False

    def __str__(self) -> str:
        return f"{self.contender} on {self.network} in {self.dtype}"


@dataclass(frozen=True)
class Operator:
    """What one operator of ours takes: its name, whether it is a kernel, how often it is called, seconds and bytes of all calls."""

    name: str
    ours: bool
    calls: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Answer(Samples):
    """Samples, our operators, and the relative L2 error of the answer."""

    operators: tuple[Operator, ...] = ()
    error: float = 0.0


def library(folder: Path, dtype: str, contender: str = OURS) -> Path:
    """Return the file of what we compile."""
    return folder / (f"network-{dtype}.so" if contender == OURS else f"{contender}-{dtype}.so")


def refusal(file: Path) -> Path:
    """Return where it is written why there is no such file."""
    return file.with_name(file.name + ".why")


def read_arrays(file: Path) -> list[Any]:
    """Return the arrays in a file, in their order."""
    with np.load(file) as arrays:
        return [arrays[name] for name in arrays.files]


def measure(task: Task) -> Answer:
    """Time what `task` says."""
    try:
        call, operators, error = _ready(task.network, task.contender, task.dtype, task.folder, task.threads)
    except (UnsupportedError, TvmconvError) as refused:
        return Answer(unsupported=str(refused))
    if task.parts:
        return Answer(operators=operators(task.seconds))
    return Answer(take_turn(call, task.seconds), error=error)


@lru_cache(maxsize=1)
def _ready(
    network: str, contender: str, dtype: str, folder: str, threads: int
) -> tuple[Callable[[], Any], Callable[[float], tuple[Operator, ...]], float]:
    """Return the call, after checking its answer, a function that times its operators, and its error."""
    path = Path(folder)
    inputs = read_arrays(path / INPUTS)
    operators: Callable[[float], tuple[Operator, ...]] = lambda seconds: ()  # noqa: E731
    if contender in (OURS, WRITTEN):
        call, answer, operators = _ours(_there(library(path, dtype, contender)), inputs)
    elif contender == OPENVINO:
        call, answer = _openvino(_there(path / MODELS[OPENVINO]), inputs, dtype, threads)
    elif contender == ONNXRUNTIME:
        call, answer = _onnxruntime(_there(path / MODELS[ONNXRUNTIME]), inputs, dtype, threads)
    else:
        call, answer = _pytorch(network, contender, path, dtype)
    expected = read_arrays(path / EXPECTED)
    error = _error(answer(), expected)
    if contender == PYTORCH and dtype != "f32":
        np.save(path / f"error-{dtype}.npy", error)
    if not error <= (allowed := _allowed(path, dtype)):
        raise VerificationError(f"wrong answer: the relative L2 error is {error:.2g}, allowed is {allowed:.2g}")
    return call, operators, error


def _allowed(path: Path, dtype: str) -> float:
    found = path / f"error-{dtype}.npy"
    return max(ALLOWED_ERROR[dtype], 2 * float(np.load(found)) if found.exists() else 0.0)


def _there(file: Path) -> Path:
    """Return a file that was written; raise why it was not."""
    if not file.exists():
        raise UnsupportedError(refusal(file).read_text())
    return file


def _error(answers: Iterable[Any], expected: list[Any]) -> float:
    """Return the largest relative L2 error of the outputs; infinity if they are not the same number of the same shapes."""
    found = [np.asarray(answer) for answer in answers]
    if [each.shape for each in found] != [each.shape for each in expected]:
        return float("inf")
    return max(
        relative_error(one.astype(np.float32), other.astype(np.float32))
        for one, other in zip(found, expected, strict=True)
    )


def _ours(file: Path, inputs: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    from tvmconv.runtime.networks.network import load_network

    network = load_network(file)
    arrays = {each.name: array.astype(each.numpy) for each, array in zip(network.inputs, inputs, strict=True)}

    def operators(seconds: float) -> tuple[Operator, ...]:
        found = network.operators(arrays, seconds)
        return tuple(Operator(each.name, each.ours, each.calls, each.seconds, each.bytes) for each in found)

    return network.call(arrays), lambda: network(**arrays).values(), operators


def _openvino(
    file: Path, inputs: list[Any], dtype: str, threads: int
) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    import openvino as ov

    from .peers.openvino import call_of, compile_network

    request = compile_network(file, dtype, threads).create_infer_request()
    for number, array in enumerate(inputs):
        request.set_input_tensor(number, ov.Tensor(array))
    call = call_of(request)

    def answer() -> list[Any]:
        call()
        return [each.data for each in request.output_tensors]

    return call, answer


def _onnxruntime(
    file: Path, inputs: list[Any], dtype: str, threads: int
) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    from .peers.onnxruntime import open_session

    if dtype != "f32":
        raise UnsupportedError(f"its CPU provider has no convolution of {dtype}")
    session = open_session(str(file), threads)
    binding = session.io_binding()
    names = [f"input{number}" for number in range(len(inputs))]
    for each in session.get_inputs():  # one that the exporter found unused is not among them
        binding.bind_cpu_input(each.name, inputs[names.index(each.name)])
    for each in session.get_outputs():
        binding.bind_output(each.name)
    return lambda: session.run_with_iobinding(binding), lambda: _outputs(session, binding)


def _outputs(session: Any, binding: Any) -> list[Any]:
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


def _pytorch(network: str, contender: str, path: Path, dtype: str) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    import torch
    from torch.utils import _pytree as pytree

    from .zoo_files import read_network

    torch.set_grad_enabled(False)
    model, inputs = read_network(network, path)
    type_ = getattr(torch, DTYPES[dtype])
    model, inputs = model.to(type_), tuple(each.to(type_) for each in inputs)
    if contender == PYTORCH_NXC:
        if all(each.dim() != 4 for each in inputs):
            raise UnsupportedError("it has a format of channels last for two dimensions alone")
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(
            each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in inputs
        )
    called: Any = model
    if contender == INDUCTOR:
        from torch._inductor import config

        config.freezing = True
        called = torch.compile(model)
    return lambda: called(*inputs), lambda: [leaf.float().numpy() for leaf in pytree.tree_leaves(called(*inputs))]
