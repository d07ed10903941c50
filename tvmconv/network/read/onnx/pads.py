"""Explicit pads, crops and gathers for ONNX's pads that TVM's ONNX frontend (0.27) misreads.

It rounds the output of a maximum pool with SAME_LOWER down, may make its pads negative, ignores dilations of averages, and pads where
a negative pad crops. Relax refuses a transposed convolution whose output padding is not below its stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from ....frontends.onnx.constants import add_constant
from ....frontends.onnx.graph import attributes_of
from ....frontends.onnx.weights import array_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

Shape = tuple[int, ...]
POOLS = ("AveragePool", "LpPool", "MaxPool")
# The modes of a Pad, by NumPy's names.
_MODES = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}


def give_pool_pads(node: NodeProto, data: Shape) -> None:
    """Give a pool explicit pads instead of `auto_pad`; an LpPool, a mean of all taps, also instead of a size that is rounded up.

    Raises
    ------
    ValueError
        If the shape of its data is not known; it continues "the node ...".
    """
    given = attributes_of(node)
    mode = given.pop("auto_pad", "NOTSET")
    rounds_up = node.op_type == "LpPool" and given.get("ceil_mode", 0)
    if mode == "NOTSET" and not rounds_up:
        return
    sizes = given["kernel_shape"]
    spatial = data[2:]
    if len(spatial) != len(sizes) or not all(spatial):
        if node.op_type != "LpPool":
            return  # `free_windows.py` reads free extents
        what = "rounds its size up" if rounds_up else f"pads by {mode}"
        raise ValueError(f"{what}, for data of unknown shape")
    strides, dilations = (given.get(name, [1] * len(sizes)) for name in ("strides", "dilations"))
    if mode == "NOTSET":
        begins, ends = (given.get("pads", [0] * (2 * len(sizes)))[part:][: len(sizes)] for part in (0, len(sizes)))
        for axis, (x, size, stride, dilation) in enumerate(zip(spatial, sizes, strides, dilations, strict=True)):
            span = dilation * (size - 1) + 1
            steps = -(-(x + begins[axis] + ends[axis] - span) // stride)
            steps -= steps * stride >= x + begins[axis]  # drop a window that begins behind the data
            ends[axis] = max(steps * stride + span - x - begins[axis], 0)
        del given["ceil_mode"]
        set_attributes(node, given | {"pads": [*begins, *ends]})
        return
    totals = [
        max((-(-x // stride) - 1) * stride + dilation * (size - 1) + 1 - x, 0) if mode.startswith("SAME") else 0
        for x, size, stride, dilation in zip(spatial, sizes, strides, dilations, strict=True)
    ]
    begins = [total - total // 2 if mode == "SAME_LOWER" else total // 2 for total in totals]
    ends = [total - begin for total, begin in zip(totals, begins, strict=True)]
    if mode.startswith("SAME"):  # the pads make the size the quotient rounded up
        given.pop("ceil_mode", None)
    set_attributes(node, given | {"pads": [*begins, *ends]})


def give_longer_output(node: NodeProto) -> None:
    """Subtract an output padding that is not below the stride from the pads at the end: negative pads extend the output."""
    given = attributes_of(node)
    extra = given.get("output_padding", [])
    strides = given.get("strides", [1] * len(extra))
    below = all(more < stride for more, stride in zip(extra, strides, strict=False))
    if below or given.get("auto_pad", "NOTSET").startswith("SAME"):
        return
    pads = given.get("pads", [0] * (2 * len(extra)))
    ends = [end - more for end, more in zip(pads[len(extra) :], extra, strict=True)]
    given.pop("auto_pad", None)
    set_attributes(node, given | {"pads": [*pads[: len(extra)], *ends], "output_padding": [0] * len(extra)})


def pad_nodes(node: NodeProto, data: Shape, model: ModelProto) -> list[NodeProto]:
    """Return the nodes for a Pad: itself or, where TVM refuses or misreads its pads, a gather or crop for each axis."""
    given = attributes_of(node)
    constants = {each.name: each for each in model.graph.initializer}
    mode, pads = given.get("mode", "constant"), pads_of(node, given, constants, len(data))
    if pads is None or not data or not all(data):
        return [node]
    # The cropped extent of each axis, which the pads copy.
    left = [x + min(begin, 0) + min(end, 0) for x, (begin, end) in zip(data, pads, strict=True)]
    most = {"reflect": [x - 1 for x in left], "wrap": left}.get(mode, [np.inf] * len(left))
    # Exporters write `wrap` before opset 19, too, and onnxruntime accepts it.
    read = mode != "wrap" or any(each.domain in ("", "ai.onnx") and each.version >= 19 for each in model.opset_import)
    if read and all(min(each) >= 0 and max(each) <= limit for each, limit in zip(pads, most, strict=True)):
        return [node]
    nodes: list[NodeProto] = []
    before, output = node.input[0], node.output[0]
    for axis, (begin, end) in enumerate(pads):
        if begin == end == 0 or (mode == "constant" and min(begin, end) >= 0):
            continue
        rows = np.arange(max(-begin, 0), data[axis] + min(end, 0))
        if mode != "constant":
            rows = np.pad(rows, (max(begin, 0), max(end, 0)), _MODES[mode])  # type: ignore[call-overload]
        name = add_constant(model, f"{output}_rows{axis}", rows.astype(np.int64))
        nodes.append(helper.make_node("Gather", [before, name], [f"{output}_axis{axis}"], axis=axis))
        before = f"{output}_axis{axis}"
    if mode != "constant":
        return [*nodes, helper.make_node("Identity", [before], [output], node.name)]
    whole = [max(begin, 0) for begin, _ in pads] + [max(end, 0) for _, end in pads]
    if "pads" in given:
        set_attributes(node, given | {"pads": whole})
        node.input[0] = before
        return [*nodes, node]
    name = add_constant(model, f"{output}_pads", np.array(whole, np.int64))
    value = list(node.input[2:3])
    return [*nodes, helper.make_node("Pad", [before, name, *value], [output], node.name, mode=mode)]


def pads_of(
    node: NodeProto, given: dict[str, Any], constants: Mapping[str, TensorProto], rank: int | None = None
) -> list[tuple[int, int]] | None:
    """Return the begin and end pads of each axis of a Pad; None if they are not fixed, or `axes` is given without the rank."""
    arrays = [array_of(constants[each]) if each in constants else None for each in node.input]
    pads, axes = ([*arrays, None, None, None][at] for at in (1, 3))
    numbers = given["pads"] if "pads" in given else None if pads is None else pads.tolist()
    if numbers is None or ("".join(node.input[3:]) and (axes is None or rank is None)):
        return None
    pairs = [*zip(numbers, numbers[len(numbers) // 2 :], strict=False)]
    if axes is None or rank is None:
        return pairs
    found = dict(zip((axis % rank for axis in axes.tolist()), pairs, strict=True))
    return [found.get(axis, (0, 0)) for axis in range(rank)]


def set_attributes(node: NodeProto, attributes: dict[str, Any]) -> None:
    """Replace a node's attributes."""
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, each) for name, each in attributes.items())
