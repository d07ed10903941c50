"""ONNX's Resize and Upsample in a form that TVM's ONNX frontend (0.27) reads correctly.

It computes coordinates by the quotient of the sizes, where ONNX uses the scale: a scale of 1.5 makes 10 elements of 7, a quotient of
1.43. It lacks antialiasing and ``half_pixel_symmetric``, and ignores the first two axes. Nodes that need these become weighted sums of
elements, axis by axis, with the elements and weights by which onnxruntime resizes the identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from ....frontends.onnx.constants import add_constant, compute
from ....frontends.onnx.graph import OURS, attributes_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shape = tuple[int, ...]
# Tolerance of a scaled extent: scales are f32, so 48 by 1.3333334 is 64.000003.
_WHOLE = 1e-3
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_POLICY = "keep_aspect_ratio_policy"
# The most elements of an identity with another axis.
_MOST = 1 << 26
# Tolerance of weights, which are of the order of 1 and in f32.
_ZERO = 1e-7


def resize(node: NodeProto, data: Shape, output: Shape, elem_type: int, model: ModelProto) -> list[NodeProto]:
    """Return the nodes for a Resize or an Upsample; their constants are added to the model.

    Parameters
    ----------
    node
        The node, which is changed if it remains one node.
    data, output
        The shapes of its data and output; empty if unknown.
    elem_type
        ONNX's number of the data's type.
    model
        The model, with folded constants.

    Raises
    ------
    ValueError
        If networks do not support the node; the message continues "the node ...".
    """
    given = attributes_of(node)
    if len(node.input) > 3 and node.input[3]:
        node.input[2] = ""  # empty scales, which PyTorch's exporter writes for opset 11
    if not data or not all(data) or len(output) != len(data) or not all(output):
        return [node]
    constants = {each.name for each in model.graph.initializer}
    if moving := [name for name in node.input[1:] if name and name not in constants]:
        raise ValueError(f"takes {moving[0]!r}, which is not fixed")
    scales = _scales(node, given, len(data), model)
    keeps = given.get(_POLICY, "stretch") != "stretch"
    if keeps:
        scales = _common_scales(node, given, data, output, model)
    mode = given.get("coordinate_transformation_mode", "half_pixel")
    fractional = mode not in ("align_corners", "tf_crop_and_resize") and any(
        scale is not None and abs(x * scale - y) > _WHOLE
        for x, y, scale in zip(data, output, scales or (), strict=bool(scales))
    )
    # Upsample, and Resize of opset 10, which is the same but may also shrink, where onnxruntime rounds up.
    early = node.op_type == "Upsample" or len(node.input) == 2
    less = early and any(scale is not None and scale < 1 for scale in scales or ())
    region = _region(node, given, len(data), model) if mode == "tf_crop_and_resize" else None
    channels = data[:2] != output[:2] or (region is not None and region[:, :2].tolist() != [[0, 0], [1, 1]])
    # For one element, the distance of corners is a division by 0.
    single = mode == "align_corners" and any(x > y == 1 for x, y in zip(data, output, strict=True))
    if fractional or less or channels or single or given.get("antialias") or mode == "half_pixel_symmetric":
        if mode == "tf_crop_and_resize":
            raise ValueError("crops channels")
        return list(_weigh(node, given, data, output, scales, elem_type, model))
    if not early and not keeps and "axes" not in given:
        return [node]
    if early:
        given = {"mode": given.get("mode", "nearest")}
        given |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = add_constant(model, f"{node.output[0]}_sizes", np.array(output, np.int64))
    given = {name: each for name, each in given.items() if name not in ("axes", _POLICY)}
    cut = "" if region is None else add_constant(model, f"{node.output[0]}_region", region.reshape(-1))
    return [helper.make_node("Resize", [node.input[0], cut, "", sizes], node.output, node.name, **given)]


def _region(node: NodeProto, given: dict[str, Any], rank: int, model: ModelProto) -> npt.NDArray[np.float32]:
    """Return the first and the last place of each axis's region, in parts of the axis."""
    found = [numpy_helper.to_array(each) for each in model.graph.initializer if each.name == node.input[1]]
    region = np.repeat(np.array([[0], [1]], np.float32), rank, axis=1)
    if found and found[0].size:
        region[:, given.get("axes", range(rank))] = found[0].reshape(2, -1)
    return region


def _common_scales(
    node: NodeProto, given: dict[str, Any], data: Shape, output: Shape, model: ModelProto
) -> list[float | Fraction | None]:
    """Return the scale that all resized axes have in common, a fraction; None where it is the quotient of the axis's sizes."""
    axes = [axis % len(data) for axis in given.get("axes", range(len(data)))]
    (sizes,) = (numpy_helper.to_array(each) for each in model.graph.initializer if each.name == node.input[3])
    choose = min if given.pop(_POLICY) == "not_larger" else max
    scale = choose(Fraction(int(size), data[axis]) for axis, size in zip(axes, sizes, strict=True))
    return [scale if axis in axes and data[axis] * scale != size else None for axis, size in enumerate(output)]


def _scales(
    node: NodeProto, given: dict[str, Any], rank: int, model: ModelProto
) -> list[float | Fraction | None] | None:
    """Return the scale of each axis; None if the node has sizes."""
    scales = given.get("scales")
    # The second input in Upsample and in Resize of opset 10.
    name = node.input[1] if len(node.input) == 2 else node.input[2] if len(node.input) > 2 else ""
    for each in model.graph.initializer:
        if name and each.name == name:
            scales = numpy_helper.to_array(each).tolist()
    if not scales:
        return None
    by_axis = dict(zip((axis % rank for axis in given.get("axes", range(rank))), scales, strict=True))
    return [by_axis.get(axis, 1.0) for axis in range(rank)]


def _weigh(
    node: NodeProto,
    given: dict[str, Any],
    data: Shape,
    output: Shape,
    scales: list[float | Fraction | None] | None,
    elem_type: int,
    model: ModelProto,
) -> Iterator[NodeProto]:
    """Yield gathers and sums, axis by axis."""
    axes = [
        axis
        for axis, (x, y) in enumerate(zip(data, output, strict=True))
        if x != y or (scales and scales[axis] not in (1, None))
    ]
    before = node.input[0]
    for axis in axes:
        after = node.output[0] if axis == axes[-1] else f"{node.output[0]}_axis{axis}"
        matrix = _matrix(
            node, given, len(data), axis, data[axis], output[axis], scales[axis] if scales else None, model
        )
        taps = max(1, int(np.count_nonzero(abs(matrix) > _ZERO, axis=0).max()))
        if taps > 1 and elem_type not in FLOATS:
            raise ValueError("interpolates between integers")
        # The elements of the largest weights of each column, in order; a column with fewer elements has weights of 0.
        rows = np.sort(np.argsort(-abs(matrix), axis=0, kind="stable")[:taps], axis=0)
        weights = np.take_along_axis(matrix, rows, axis=0)
        yield from _sum(model, before, after, axis, rows, weights if taps > 1 else None, len(data), elem_type)
        before = after
    if not axes:
        yield helper.make_node("Identity", [before], node.output)


def _sum(
    model: ModelProto,
    before: str,
    after: str,
    axis: int,
    rows: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    rank: int,
    elem_type: int,
) -> Iterator[NodeProto]:
    """Yield the nodes of one axis: the sum of a gather for each tap times its weights."""
    for tap, indices in enumerate(rows):
        name = add_constant(model, f"{after}_rows{tap}", indices)
        gathered = after if weights is None else f"{after}_gathered{tap}"
        yield helper.make_node("Gather", [before, name], [gathered], axis=axis)
        if weights is None:
            return
        dtype = helper.tensor_dtype_to_np_dtype(elem_type)
        factor = add_constant(
            model, f"{after}_weights{tap}", weights[tap].astype(dtype).reshape(-1, *[1] * (rank - 1 - axis))
        )
        yield helper.make_node("Mul", [gathered, factor], [f"{after}_term{tap}"])
        if tap:
            last = tap == len(rows) - 1
            so_far = f"{after}_sum{tap - 1}" if tap > 1 else f"{after}_term0"
            yield helper.make_node("Add", [so_far, f"{after}_term{tap}"], [after if last else f"{after}_sum{tap}"])


def _matrix(
    node: NodeProto,
    given: dict[str, Any],
    rank: int,
    axis: int,
    size: int,
    to: int,
    scale: float | Fraction | None,
    model: ModelProto,
) -> npt.NDArray[np.float32]:
    """Return the weights of an axis's elements (rows) in the node's outputs (columns)."""
    if isinstance(scale, Fraction):
        return _kept_ratio(given, size, scale, model)
    other = 0 if axis else 1
    shape, sizes = [1] * rank, [1] * rank
    shape[other] = shape[axis] = sizes[other] = size
    sizes[axis] = to
    identity = np.eye(size, dtype=np.float32).reshape(shape)
    inputs: list[npt.NDArray[Any] | None]
    version = next(each.version for each in model.opset_import if each.domain in OURS)
    nothing = (
        None if version >= 13 else np.zeros(0, np.float32)
    )  # before, the region and the scales may not be left out
    if scale is None:
        inputs = [identity, nothing, nothing, np.array(sizes, np.int64)]
    else:
        factors = np.ones(rank, np.float32)
        factors[axis] = scale
        inputs = [identity, nothing, factors] if len(node.input) > 2 else [identity, factors]
        if "scales" in given:  # of opset 7
            inputs, given = [identity], given | {"scales": factors.tolist()}
    given = {name: each for name, each in given.items() if name != "axes"}
    found = np.asarray(compute(node.op_type, given, inputs, model), np.float32)
    return found.reshape(-1, size).T if other else found.reshape(size, -1)


def _kept_ratio(given: dict[str, Any], size: int, scale: Fraction, model: ModelProto) -> npt.NDArray[np.float32]:
    """Return the weights of an axis whose scale is that of another one, which alone decides it, and of which one element is taken."""
    if size * size * scale.denominator > _MOST:
        raise ValueError(f"keeps the aspect ratio by the scale {scale}, whose weights take too much memory")
    shape = (size, 1, scale.denominator, size)
    identity = np.broadcast_to(np.eye(size, dtype=np.float32)[:, None, None], shape)
    sizes = np.array([scale.numerator, (int(scale) + 1) * size], np.int64)
    found = compute("Resize", given | {"axes": [2, 3], _POLICY: "not_larger"}, [identity, None, None, sizes], model)
    return np.asarray(found[:, 0, 0], np.float32)
