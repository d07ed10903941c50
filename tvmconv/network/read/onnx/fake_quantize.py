"""OpenVINO's FakeQuantize in ONNX files, as NNCF writes it: as QuantizeLinear and DequantizeLinear, or by its formula.

Between the lowest and the highest number that it takes lie `levels` steps, which it gives between two others. Where these are the same,
and zero is a step, it is a quantizer of 8 bits; fixed numbers are then integers that are dequantized.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ....errors import SourceError
from ....frontends.onnx.graph import attributes_of
from ....frontends.onnx.weights import array_of
from .writer import NodeWriter

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

Array = npt.NDArray[Any]
DOMAIN = "org.openvinotoolkit"
# Distance of zero from a step, in steps, that bounds in f32 leave.
_OFF_STEP = 1e-3


def expand_fake_quantize(model: ModelProto, source: str) -> None:
    """Replace the FakeQuantize nodes of a model's graph.

    Raises
    ------
    SourceError
        If the bounds of one are not fixed, or two of them are one number; it names the node.
    """
    if not any(map(_is_fake, model.graph.node)):
        return
    fixed = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and "value" in (given := attributes_of(node)):
            fixed[node.output[0]] = given["value"]
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += _expand(node, model, source, fixed) if _is_fake(node) else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _is_fake(node: NodeProto) -> bool:
    return bool(node.op_type == "FakeQuantize" and node.domain == DOMAIN)


def _expand(node: NodeProto, model: ModelProto, source: str, fixed: Mapping[str, TensorProto]) -> list[NodeProto]:
    write, levels = NodeWriter(node, model), int(attributes_of(node)["levels"])
    data, *bounds = (array_of(fixed[name]) if name in fixed else None for name in node.input)
    known = [each for each in bounds if each is not None]
    if len(known) < 4 or levels < 2 or (known[0] == known[1]).any():
        raise SourceError(
            f"{source}: the FakeQuantize node {node.name or node.output[0]!r} is read with fixed bounds, a lowest number that is not the"
            " highest, and two levels or more"
        )
    if not _write_quantizer(node.input[0], data, write, levels, known):
        _write_formula(node.input[0], write, levels, known)
    write.nodes[-1].output[0] = node.output[0]
    return write.nodes


def _write_quantizer(data: str, weights: Array | None, write: NodeWriter, levels: int, bounds: list[Array]) -> bool:
    """Write it as a quantizer of 8 bits, and what dequantizes; fixed numbers as integers. Return False if it is none."""
    low, high = (each.astype(np.float64) for each in np.broadcast_arrays(*bounds[:2]))
    axes = [axis for axis, size in enumerate(low.shape) if size > 1]
    scale = (high - low) / (levels - 1)
    zero = -low / scale
    same = all(np.allclose(one, other, rtol=1e-6, atol=0) for one, other in (bounds[::2], bounds[1::2]))
    on_step = (np.abs(zero - np.rint(zero)) <= _OFF_STEP).all() and zero.min() >= -0.5 and np.rint(zero).max() < levels
    if levels > 256 or len(axes) > 1 or not (scale > 0).all() or not same or not on_step:
        return False
    zero = np.rint(zero)
    shape: Any = -1 if axes else ()
    more = {"axis": axes[0] - low.ndim} if axes else {}
    if weights is not None:
        # Symmetric weights are s8, whose zero point is 0.
        middle = levels // 2 if (zero == levels // 2).all() else 0
        kind = np.int8 if middle else np.uint8
        steps = np.rint((np.clip(weights, low, high) - low) / scale) - middle
        numbers = scale.astype(np.float32).reshape(shape), (zero - middle).astype(kind).reshape(shape)
        write.op("DequantizeLinear", steps.astype(kind), *numbers, **more)
        return True
    if levels < 256:
        data = write.op("Max", write.op("Min", data, bounds[1]), bounds[0])
    numbers = scale.astype(np.float32).reshape(shape), zero.astype(np.uint8).reshape(shape)
    write.op("DequantizeLinear", write.op("QuantizeLinear", data, *numbers, **more), *numbers, **more)
    return True


def _write_formula(data: str, write: NodeWriter, levels: int, bounds: list[Array]) -> None:
    low, high, out_low, out_high = bounds
    ends = np.minimum(low, high), np.maximum(low, high)
    data = write.op("Max", write.op("Min", data, ends[1]), ends[0])
    factor = ((levels - 1) / (high.astype(np.float64) - low)).astype(low.dtype)
    steps = write.op("Round", write.op("Mul", write.op("Sub", data, low), factor))
    step = ((out_high.astype(np.float64) - out_low) / (levels - 1)).astype(low.dtype)
    write.op("Add", write.op("Mul", steps, step), out_low)
