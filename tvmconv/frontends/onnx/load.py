"""Load ONNX models: nodes sorted topologically, functions inlined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ...errors import SourceError
from .graph import OURS, subgraphs
from .inline import inline_functions
from .order import sort_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

# Operators of onnxruntime's own kernels, into which its optimizations turn convolutions: all of these domains, and these.
_OPTIMIZED_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
_OPTIMIZED = ("FusedConv", "NhwcFusedConv")


def load(content: bytes, source: str, inline: bool = True) -> ModelProto:
    """Return a model with sorted nodes; its own functions are inlined if `inline`, else left to onnxruntime.

    Raises
    ------
    SourceError
        If it is not an ONNX model, was optimized by onnxruntime for its own kernels, has a cycle, or functions that cannot be inlined.
    """
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise SourceError(f"{source} is not an ONNX model, or is truncated: {error}") from None
    if not model.opset_import or not model.HasField("graph"):
        raise SourceError(f"{source} is not an ONNX model: it has no {'graph' if model.opset_import else 'opset'}")
    if optimized := next(_find_optimized(model.graph), None):
        raise SourceError(
            f"{source} was written by onnxruntime after its optimizations ({optimized}), for its own kernels; give the model as"
            " it was exported, or write it again without those: graph_optimization_level ORT_ENABLE_BASIC, or ORT_DISABLE_ALL"
        )
    sort_nodes(model, source)
    return inline_functions(model, source) if inline else model


def _find_optimized(graph: GraphProto) -> Iterator[str]:
    """Yield signs that onnxruntime has optimized a graph beyond ONNX's own operators."""
    for node in graph.node:
        if node.domain in _OPTIMIZED_DOMAINS or (node.op_type in _OPTIMIZED and node.domain not in OURS):
            yield f"node {node.name or ''.join(node.output[:1])!r} is {node.domain}.{node.op_type}"
        for inner in subgraphs(node):
            yield from _find_optimized(inner)
