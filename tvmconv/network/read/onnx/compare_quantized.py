"""Comparison of a quantized network with onnxruntime, quantizer by quantizer.

Sums in f32 round, those of integers do not, so a number near the middle between two integers may round to either, after which results
differ by the quantization error, 0.01 to 0.08 of relative L2 after tens of layers. So onnxruntime computes the input of each quantizer
from the network's results of the quantizers before; the network's integers must be its rounded values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from ....accuracy import describe_differences
from ....errors import InputError, last_line
from ....frontends.onnx.graph import attributes_of, used_names_of
from ....frontends.onnx.session import open_session
from ..misrounding import describe_misrounding
from .expand_qlinear import expand_qlinear

if TYPE_CHECKING:
    from onnx import NodeProto

    from ....runtime.networks.tensors import Array

_QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear")
_STEPS = (np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.uint16), np.dtype(np.int16))


def quantized_tensors(model: ModelProto) -> list[str]:
    """Return the outputs of a model's quantizers, in order, except those of constants and within branches."""
    expanded = ModelProto()
    expanded.CopyFrom(model)
    expand_qlinear(expanded)
    return [name for node in _quantizers(expanded) for name in node.output if name]


def with_quantized(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """Return a model with input shapes fixed, and its quantizers' results as additional outputs."""
    made = ModelProto()
    made.CopyFrom(model)
    for each in made.graph.input:
        if each.name in shapes:
            dims = each.type.tensor_type.shape.dim
            for dim, size in zip(dims, shapes[each.name], strict=True):
                dim.dim_value = size
    present = {each.name for each in made.graph.output}
    made.graph.output.extend(ValueInfoProto(name=each) for each in quantized_tensors(model) if each not in present)
    return made


def find_wrong_quantizers(model: ModelProto, arrays: Mapping[str, Array], taken: Mapping[str, Array]) -> list[str]:
    """Describe the quantizers and outputs of a network that differ from onnxruntime's, each computed from the network's own
    quantizers before it.

    Parameters
    ----------
    model
        The compiled model.
    arrays
        The network's inputs.
    taken
        The results of its quantizers and outputs.

    Raises
    ------
    InputError
        If onnxruntime cannot run it on them.
    """
    given = ModelProto()
    given.CopyFrom(model)
    expand_qlinear(given)
    quantizers = [node for node in _quantizers(given) if taken[node.output[0]].dtype in _STEPS]
    made = {name for node in quantizers for name in node.output if name}
    for node in quantizers:
        given.graph.node.remove(node)
    outputs = [each.name for each in given.graph.output if each.name not in made]
    given.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(taken[name].dtype), taken[name].shape)
        for name in sorted(made)
    )
    asked = [name for node in quantizers for name in _numbers(node)]
    del given.graph.output[:]
    for number, name in enumerate((*asked, *outputs)):
        given.graph.node.append(helper.make_node("Identity", [name], [f"{name}.asked.{number}"]))
        given.graph.output.append(ValueInfoProto(name=given.graph.node[-1].output[0]))
    try:
        session = open_session(given, "ORT_DISABLE_ALL")
        known = {**arrays, **{name: taken[name] for name in made}}
        found = session.run(None, {each.name: known[each.name] for each in session.get_inputs()})
    except Exception as error:  # its own have no other class
        raise InputError(f"onnxruntime cannot run it between its quantizers: {last_line(error)}") from error
    wrong, rest = [], iter(found)
    for node in quantizers:
        numbers = [next(rest) for _ in _numbers(node)]
        wrong += _describe_misrounding(node, taken[node.output[0]], *numbers)
    return wrong + describe_differences({name: taken[name] for name in outputs}, list(rest))


def _quantizers(model: ModelProto) -> list[NodeProto]:
    """Return the quantizers of values that depend on a model's inputs."""
    fixed = {each.name for each in model.graph.initializer}
    computed = {each.name for each in model.graph.input} - fixed
    found = []
    for node in model.graph.node:
        if computed.intersection(used_names_of(node)):
            computed.update(node.output)
            if node.op_type in _QUANTIZERS:
                found.append(node)
    return found


def _numbers(node: NodeProto) -> list[str]:
    """Return the names of the tensor that a node quantizes, its scale and, if any, its zero point."""
    names = [node.input[0], *node.output[1:]] if node.op_type == "DynamicQuantizeLinear" else list(node.input)
    return [each for each in names if each]


def _describe_misrounding(
    node: NodeProto, got: Array, values: Array, scale: Array, zero: Array | None = None
) -> list[str]:
    """Describe by how much a quantizer's integers, or a computed scale, miss the right ones, if that is too far."""
    name = node.output[0]
    if node.op_type == "DynamicQuantizeLinear":
        least, greatest = min(float(values.min(initial=0)), 0), max(float(values.max(initial=0)), 0)
        if not np.isclose(scale * 255, greatest - least, rtol=1e-4):  # tolerance: of f32's sums
            return [f"{name} by a scale of {scale} instead of {(greatest - least) / 255}"]
    return describe_misrounding(name, got, values, scale, zero, attributes_of(node).get("axis", 1))
