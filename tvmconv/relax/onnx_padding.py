"""Zeros that a Pad node puts before a Conv join the Conv's own pads: the kernel reads what the Pad would copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper, numpy_helper

from ..frontends.onnx_graph import attributes_of, used_names

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def join_pads(model: ModelProto) -> None:
    """Let each Conv of a model, its constants computed, pad what Pad nodes pad before it; `model` is changed.

    A Pad that others read stays.
    """
    joined: set[str] = set()
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        while (
            node.op_type == "Conv" and node.domain in ("", "ai.onnx") and (pad := made.get(node.input[0])) is not None
        ):
            attributes = attributes_of(node)
            if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
                break
            pads = _zeros(pad, constants)
            if pads is None or any(pads[:2]) or any(pads[len(pads) // 2 :][:2]):
                break
            more = [*pads[2 : len(pads) // 2], *pads[len(pads) // 2 + 2 :]]
            own = attributes.get("pads", [0] * len(more))
            kept = [each for each in node.attribute if each.name != "pads"]
            del node.attribute[:]
            node.attribute.extend(
                [*kept, helper.make_attribute("pads", [a + b for a, b in zip(own, more, strict=True)])]
            )
            joined.add(pad.output[0])
            node.input[0] = pad.input[0]
    outputs = {each.name for each in model.graph.output}
    for pad in reversed([node for node in model.graph.node if joined.intersection(node.output)]):
        if pad.output[0] not in {*used_names(model.graph), *outputs}:
            model.graph.node.remove(pad)


def _zeros(pad: NodeProto, constants: dict[str, Any]) -> list[int] | None:
    """Return how many zeros a Pad puts before each axis, then after each; None if it does something else, or is no Pad."""
    attributes = attributes_of(pad)
    if pad.op_type != "Pad" or attributes.get("mode", "constant") not in ("constant", b"constant"):
        return None
    given = [*pad.input[1:], "", "", ""][:3]
    if any(name and name not in constants for name in given):
        return None
    amounts, value, axes = (numpy_helper.to_array(constants[name]) if name else None for name in given)
    if amounts is None:  # as before opset 11
        amounts, value = np.array(attributes.get("pads", ())), np.array(attributes.get("value", 0.0))
    if (
        axes is not None
        or len(amounts) < 6
        or int(amounts.min()) < 0
        or (value is not None and bool(np.any(value != 0)))
    ):
        return None
    return [int(each) for each in amounts]
