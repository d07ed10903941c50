"""Programs of torch.export as Relax modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from ..errors import SourceError, last_line, missing_extra

try:
    from torch.fx import Node
except ImportError:
    raise missing_extra("torch", "torch") from None

from tvm.relax.frontend.torch import from_exported_program

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter

_OPERATORS = {
    (1, False): relax.op.nn.conv1d,
    (2, False): relax.op.nn.conv2d,
    (3, False): relax.op.nn.conv3d,
    (1, True): relax.op.nn.conv1d_transpose,
    (2, True): relax.op.nn.conv2d_transpose,
    (3, True): relax.op.nn.conv3d_transpose,
}


def read_torch(program: ExportedProgram) -> tvm.IRModule:
    """Return what ``torch.export.export`` gave as TVM's frontend reads it, its parameters as constants.

    But its convolutions and products: the frontend lacks transposed ones of three dimensions, and takes every sum for f32. And
    its ELUs, of which it leaves out a scale.

    Raises
    ------
    SourceError
        If the frontend lacks an operator; it says which.
    """
    try:
        return from_exported_program(program, custom_convert_map=_CONVERTERS)
    except Exception as error:  # assertions, and whatever its converters stumble over
        raise SourceError(f"TVM's PyTorch frontend cannot read the program: {last_line(error)}") from error


def _convolution(node: Node, importer: BaseFXGraphImporter) -> Any:
    """Return ``aten.convolution.default`` by Relax's operators."""
    data, weights, bias, strides, padding, dilation, transposed, output_padding, groups = importer.retrieve_args(node)
    rank = data.ty.ndim - 2
    if (rank, transposed) not in _OPERATORS:
        raise ValueError(f"{node.name} is a convolution of {rank} dimensions")
    attributes = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        # Relax refuses output padding that is not below the stride; as pads below 0 it is the same.
        ends = [pad - more for pad, more in zip(padding, output_padding, strict=True)]
        attributes["padding"] = [*padding, *ends]
    emit = importer.block_builder.emit
    output = emit(_OPERATORS[rank, transposed](data, weights, **attributes))
    if bias is None:
        return output
    return emit(relax.op.add(output, emit(relax.op.reshape(bias, (1, -1, *[1] * rank)))))


def _product(node: Node, importer: BaseFXGraphImporter) -> Any:
    return importer.block_builder.emit(relax.op.matmul(*importer.retrieve_args(node)))


def _sum_of_product(node: Node, importer: BaseFXGraphImporter) -> Any:
    """Return ``aten.addmm.default``, of Linear."""
    bias, rows, matrix = importer.retrieve_args(node)
    emit = importer.block_builder.emit

    def scaled(value: Any, factor: float) -> Any:
        return value if factor == 1 else emit(relax.op.multiply(value, relax.const(factor, str(value.ty.dtype))))

    product = scaled(emit(relax.op.matmul(rows, matrix)), node.kwargs.get("alpha", 1))
    return emit(relax.op.add(product, scaled(bias, node.kwargs.get("beta", 1))))


def _elu(node: Node, importer: BaseFXGraphImporter) -> Any:
    """Return ``aten.elu.default``; the frontend leaves out its last two numbers, and so computed SELU without its scale."""
    data, *numbers = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, str(data.ty.dtype)
    alpha, scale, input_scale = [*numbers, 1.0, 1.0, 1.0][:3]

    def scaled(value: Any, factor: float) -> Any:
        return value if factor == 1 else emit(relax.op.multiply(relax.const(factor, dtype), value))

    power = emit(relax.op.exp(scaled(data, input_scale)))
    below = emit(relax.op.nn.relu(emit(relax.op.subtract(relax.const(1.0, dtype), power))))
    return scaled(emit(relax.op.add(scaled(below, -alpha), emit(relax.op.nn.relu(data)))), scale)


_CONVERTERS = {
    "elu.default": _elu,
    "convolution.default": _convolution,
    "mm.default": _product,
    "bmm.default": _product,
    "addmm.default": _sum_of_product,
}
