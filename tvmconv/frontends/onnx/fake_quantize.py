"""OpenVINO's FakeQuantize in ONNX files, as NNCF writes it: as QuantizeLinear and DequantizeLinear, or by its formula.

It rounds inputs between two bounds to `levels` steps, and maps these to the range between two output bounds. If both ranges are
equal, and zero is a step, it is a quantizer of 8 bits; constants are then stored as integers that are dequantized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import SourceError
from .graph import attributes_of
from .weights import array_of
from .writer import NodeWriter

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

Array = npt.NDArray[Any]
DOMAIN = "org.openvinotoolkit"
# Distance of zero from a step, in steps, that rounding of f32 bounds explains.
_OFF_STEP = 1e-3


def expand_fake_quantize(model: ModelProto, source: str) -> None:
    """Replace the FakeQuantize nodes of a model's graph.

    Raises
    ------
    SourceError
        If a node's bounds are not fixed or not finite, or its input bounds are equal; it names the node.
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
    finite = all(np.isfinite(each).all() for each in known)
    if len(known) < 4 or levels < 2 or not finite or (known[0] == known[1]).any():
        raise SourceError(
            f"{source}: the FakeQuantize node {node.name or node.output[0]!r} needs fixed, finite bounds, a lowest number that is not"
            " the highest, and at least two levels"
        )
    if not _write_quantizer(node.input[0], data, write, levels, known):
        _write_formula(node.input[0], write, levels, known)
    write.nodes[-1].output[0] = node.output[0]
    return write.nodes


@dataclass(frozen=True)
class StepRounding:
    """A quantizer of at most 8 bits: steps of `scale` from `low` to `high`; the step number `zero` is 0."""

    low: Array
    high: Array
    scale: Array
    zero: Array
    levels: int

    @property
    def middle(self) -> int:
        """Return the number of the middle step if that is 0, as for symmetric weights, stored in s8; else 0, for u8."""
        return self.levels // 2 if (self.zero == self.levels // 2).all() else 0

    def round(self, weights: Array) -> Array:
        """Return the step numbers of weights, less `middle`."""
        steps = np.rint((np.clip(weights, self.low, self.high) - self.low) / self.scale) - self.middle
        return steps.astype(np.int8 if self.middle else np.uint8)


def find_quantizer(levels: int, bounds: Sequence[Array]) -> StepRounding | None:
    """Return a FakeQuantize as a quantizer of 8 bits; None: it is none."""
    low, high = (each.astype(np.float64) for each in np.broadcast_arrays(*bounds[:2]))
    scale = (high - low) / (levels - 1)
    if levels > 256 or not (scale > 0).all():
        return None
    zero = -low / scale
    same = all(np.allclose(one, other, rtol=1e-6, atol=0) for one, other in (bounds[::2], bounds[1::2]))
    on_step = (np.abs(zero - np.rint(zero)) <= _OFF_STEP).all() and zero.min() >= -0.5 and np.rint(zero).max() < levels
    return StepRounding(low, high, scale, np.rint(zero), levels) if same and on_step else None


def _write_quantizer(data: str, weights: Array | None, write: NodeWriter, levels: int, bounds: list[Array]) -> bool:
    """Write the node as a quantizer and a dequantizer of 8 bits, constants as integers; return False if it is no quantizer."""
    found = find_quantizer(levels, bounds)
    if found is None:
        return False
    axes = [axis for axis, size in enumerate(found.low.shape) if size > 1]
    if len(axes) > 1:
        return False
    shape: Any = -1 if axes else ()
    more = {"axis": axes[0] - found.low.ndim} if axes else {}
    scale = found.scale.astype(np.float32).reshape(shape)
    if weights is not None:
        steps = found.round(weights)
        write.op(
            "DequantizeLinear", steps, scale, (found.zero - found.middle).astype(steps.dtype).reshape(shape), **more
        )
        return True
    if levels < 256:
        data = write.op("Max", write.op("Min", data, bounds[1]), bounds[0])
    numbers = scale, found.zero.astype(np.uint8).reshape(shape)
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
