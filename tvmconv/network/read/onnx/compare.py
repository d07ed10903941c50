"""Comparison of a compiled network with onnxruntime, which shows operators that TVM's frontend misreads.

onnxruntime reads the original file with its functions, so that errors of inlining show, too. Models that it cannot run, such as most in
bf16, are computed by ONNX's reference evaluator, unless that would take minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....accuracy import describe_differences
from ....errors import InputError, SourceError, TvmconvWarning, last_line
from ....frontends.onnx.graph import OURS, attributes_of, subgraphs, values_of
from ....frontends.onnx.load import load
from ....frontends.onnx.session import open_session
from ....frontends.onnx.weights import infer_shapes
from ....frontends.shapes import Bucket
from .reader import fix_shapes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from ....runtime.networks.network import Network
    from ....runtime.networks.tensors import Array

# Cost of the evaluator, in multiply-adds of its convolutions, which runs some 80 million a second on a Zen 3. It computes the elements
# of pools one by one.
_MOST_WORK = 5e9
_POOLS = ("AveragePool", "LpPool", "MaxPool", "MaxRoiPool", "RoiAlign")
_POOL_WORK = 2000
_INTEGERS = ("ConvInteger", "MatMulInteger")
_WORK = {"Conv": 1, "ConvTranspose": 10, "Einsum": 1, "GRU": 1, "LSTM": 1, "RNN": 1}


def original_model(source: str, model: ModelProto, bucket: Bucket | None = None, cut: Sequence[str] = ()) -> ModelProto:
    """Return the model to compare with: the file with its own functions, unless onnxruntime (1.31) misreads these.

    Parameters
    ----------
    source, bucket, cut
        As for :func:`tvmconv.network.read.onnx.reader.fix_shapes`.
    model
        The model that it returned for these.
    """
    came = load(Path(source).read_bytes(), source, inline=False)
    versions = {each.version for each in came.opset_import if each.domain in OURS}
    imports = (each for function in came.functions for each in function.opset_import if each.domain in OURS)
    if not came.functions or not versions.issuperset(each.version for each in imports):
        return model  # onnxruntime reads functions by the model's opset
    try:
        return fix_shapes(source, bucket, cut, inline=False)
    except SourceError:  # `cut` names a tensor within a function
        return model


def differences(model: ModelProto, network: Network, came: ModelProto | None = None) -> list[str]:
    """Return which outputs of a network differ from the expected ones on the same random inputs, and by how much.

    Parameters
    ----------
    model
        The compiled model with its weights, as returned by :func:`tvmconv.network.read.onnx.reader.fix_shapes`.
    network
        The network.
    came
        The result of :func:`original_model` for it; None: `model`.

    Raises
    ------
    InputError
        If neither onnxruntime nor ONNX's evaluator runs the model on the inputs, for example because a random index is out of range.
    """
    arrays = network.random_inputs(batch=2)
    return describe_differences(network(**arrays), answers(model, arrays, came))


def answers(model: ModelProto, arrays: Mapping[str, Array], came: ModelProto | None = None) -> list[Array]:
    """Return onnxruntime's outputs, or the evaluator's with a warning; parameters and errors are those of :func:`differences`."""
    try:
        found = run_session(open_compared(model if came is None else came), arrays)
    except Exception as refusal:  # noqa: BLE001 (its own have no other class)
        why = f"onnxruntime cannot run it on random inputs: {last_line(refusal)}"
        try:
            found = _evaluate(model, arrays)
        except InputError as error:
            raise InputError(f"{why}; {error}") from refusal
        warnings.warn(f"compared with ONNX's reference evaluator, because {why}", TvmconvWarning, stacklevel=2)
    return found


def open_compared(model: ModelProto) -> Any:
    """Return the onnxruntime session that a network is compared with."""
    # Optimizations change the results of quantized models: operators are fused, and pairs saturate in 16 bits.
    return open_session(model, "ORT_DISABLE_ALL" if is_quantized(model.graph) else "ORT_ENABLE_ALL")


def run_session(session: Any, arrays: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a session whose inputs are among the arrays."""
    taken = {each.name for each in session.get_inputs()}
    found: list[Array] = session.run(None, {name: each for name, each in arrays.items() if name in taken})
    return found


def is_quantized(graph: GraphProto) -> bool:
    """Return whether a graph has quantizers, or operators on quantized integers."""
    named = any(
        "QuantizeLinear" in node.op_type or node.op_type.startswith("QLinear") or node.op_type in _INTEGERS
        for node in graph.node
    )
    return named or any(map(is_quantized, (inner for node in graph.node for inner in subgraphs(node))))


def _evaluate(model: ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    if (work := _work(infer_shapes(model).graph, {})) > _MOST_WORK:
        raise InputError(f"ONNX's reference evaluator would take too long ({work:.1g} multiply-adds)")
    from onnx.reference import ReferenceEvaluator  # takes longer to import than ONNX

    taken = {each.name for each in model.graph.input}
    try:
        return list(ReferenceEvaluator(model).run(None, {name: each for name, each in arrays.items() if name in taken}))
    except Exception as error:  # of any kind, whatever its operators raise
        raise InputError(f"nor can ONNX's reference evaluator: {last_line(error)}") from error


def _work(graph: GraphProto, outer: Mapping[str, Sequence[int]]) -> float:
    """Return the evaluator's work for a graph, in multiply-adds of its convolutions; unknown nodes count as 1."""
    shapes = {**outer}
    for name, value in values_of(graph).items():
        shapes[name] = [size if isinstance(size, int) and size > 0 else 1 for size in value.shape or ()]

    def taps(node: NodeProto) -> float:
        if node.op_type in _POOLS:
            return _POOL_WORK * float(prod(attributes_of(node).get("kernel_shape", (1,))))
        if node.op_type in ("Gemm", "MatMul"):
            return max(shapes.get(node.input[0], [1])[-2:], default=1)
        return _WORK.get(node.op_type, 0) * prod(shapes.get("".join(node.input[1:2]), [1])[1:]) or 1

    own = sum(taps(node) * prod(shapes.get("".join(node.output[:1]), [1])) for node in graph.node)
    return own + sum(_work(inner, shapes) for node in graph.node for inner in subgraphs(node))
