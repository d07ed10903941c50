"""Merge a Pad with zeros into the pads of the Conv after it, so that the kernel reads the unpadded data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper

from ....frontends.onnx.graph import attributes_of, used_names
from .pads import pads_of, set_attributes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto


def join_pads(model: ModelProto) -> None:
    """Replace Pad nodes by pads of the Convs after them, in a model with folded constants; `model` is changed.

    A Pad with other consumers stays for these.
    """
    joined: set[str] = set()
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        while (
            node.op_type == "Conv" and node.domain in ("", "ai.onnx") and (pad := made.get(node.input[0])) is not None
        ):
            attributes = attributes_of(node)
            pads = _zeros(pad, constants)
            if attributes.get("auto_pad", "NOTSET") != "NOTSET" or pads is None or any(map(any, pads[:2])):
                break
            more = [*(begin for begin, _ in pads[2:]), *(end for _, end in pads[2:])]
            own = attributes.get("pads", [0] * len(more))
            set_attributes(node, attributes | {"pads": [a + b for a, b in zip(own, more, strict=True)]})
            joined.add(pad.output[0])
            node.input[0] = pad.input[0]
    outputs = {each.name for each in model.graph.output}
    for pad in reversed([node for node in model.graph.node if joined.intersection(node.output)]):
        if pad.output[0] not in {*used_names(model.graph), *outputs}:
            model.graph.node.remove(pad)


def _zeros(pad: NodeProto, constants: dict[str, TensorProto]) -> list[tuple[int, int]] | None:
    """Return the numbers of zeros that a Pad adds before and after each axis; None for other nodes and pads."""
    given = attributes_of(pad)
    if pad.op_type != "Pad" or given.get("mode", "constant") != "constant" or "".join(pad.input[3:]):
        return None
    name = "".join(pad.input[2:3])
    value = numpy_helper.to_array(constants[name]) if name in constants else given.get("value", 0.0)
    if (name and name not in constants) or np.any(value != 0):
        return None
    pads = pads_of(pad, given, constants)
    return pads if pads is not None and len(pads) > 2 and min(map(min, pads)) >= 0 else None
