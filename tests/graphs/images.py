"""Nodes on images: convolutions, pools, normalizations, resizes, samples."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .draw import Draw

_Name = str | None
_INT = np.int64


def _real(value: np.ndarray) -> bool:
    return value.dtype == np.float32


def _plane(state: Draw, value: np.ndarray) -> int:
    """Return the number of spatial axes of a value of images; 0: it is none."""
    return value.ndim - 2 if _real(value) and 3 <= value.ndim <= 5 else 0


def _pads(state: Draw, rank: int, most: int = 2) -> dict[str, Any]:
    """Return attributes of padding, in one of the ways there are."""
    kind = state.pick(["none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if kind == "none":
        return {}
    if kind == "pads":
        return {"pads": [state.random.randint(0, most) for _ in range(2 * rank)]}
    return {"auto_pad": kind}


def convolution(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Convolutions."""
    if not (rank := _plane(state, value)):
        return None
    channels = value.shape[1]
    groups = state.pick([each for each in (1, 1, 2, 3, channels) if channels % each == 0])
    outputs = groups * state.pick([1, 2, 3, 4])
    taps = [state.pick([1, 2, 3, 3, 5]) for _ in range(rank)]
    inputs = [
        name,
        state.weight(outputs, channels // groups, *taps),
        *([state.weight(outputs)] if state.pick([True, False]) else []),
    ]
    more = _pads(state, rank) | ({"group": groups} if groups > 1 else {})
    if state.pick([True, False]):
        more |= {"strides": [state.pick([1, 1, 2, 3]) for _ in range(rank)]}
    if state.pick([True, False, False]):
        more |= {"dilations": [state.pick([1, 2]) for _ in range(rank)]}
    if state.pick([True, False]):
        more |= {"kernel_shape": taps}
    return state.node("Conv", inputs, **more)


def transposed(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Transposed convolutions."""
    if not (rank := _plane(state, value)):
        return None
    channels = value.shape[1]
    groups = state.pick([each for each in (1, 1, 2, channels) if channels % each == 0])
    outputs = state.pick([1, 2, 3])
    taps, steps = [state.pick([1, 2, 3, 4]) for _ in range(rank)], [state.pick([1, 2, 3]) for _ in range(rank)]
    inputs = [
        name,
        state.weight(channels, outputs, *taps),
        *([state.weight(groups * outputs)] if state.pick([True, False]) else []),
    ]
    more: dict[str, Any] = {"strides": steps, "group": groups, "kernel_shape": taps}
    kind = state.pick(["plain", "pads", "more", "shape", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if kind == "pads":
        more |= {"pads": [state.random.randint(0, 1) for _ in range(2 * rank)]}
    elif kind == "more":
        more |= {"output_padding": [state.random.randint(0, step - 1) for step in steps]}
    elif kind == "shape":
        sizes = [size * step + state.random.randint(0, 1) for size, step in zip(value.shape[2:], steps, strict=True)]
        more |= {"output_shape": sizes}
    elif kind != "plain":
        more |= {"auto_pad": kind}
    if state.pick([True, False, False]):
        more |= {"dilations": [state.pick([1, 2]) for _ in range(rank)]}
    return state.node("ConvTranspose", inputs, **more)


def pool(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Pools, with places of what is greatest, too."""
    if not (rank := _plane(state, value)):
        return None
    kind = state.pick(
        [
            "MaxPool",
            "MaxPool",
            "AveragePool",
            "AveragePool",
            "LpPool",
            "GlobalMaxPool",
            "GlobalAveragePool",
            "GlobalLpPool",
        ]
    )
    if kind.startswith("Global"):
        return state.node(kind, [name], **({"p": state.pick([1, 2])} if kind == "GlobalLpPool" else {}))
    taps = [state.pick([1, 2, 2, 3]) for _ in range(rank)]
    more = _pads(state, rank, 1) | {"kernel_shape": taps}
    if state.pick([True, True, False]):
        more |= {"strides": [state.pick([1, 2, 2, 3]) for _ in range(rank)]}
    if kind == "LpPool":
        more |= {"p": state.pick([1, 2])}
    if kind != "LpPool" or state.opset >= 18:
        more |= {"ceil_mode": state.pick([0, 0, 1])}
    if kind == "AveragePool":
        more |= {"count_include_pad": state.pick([0, 1])}
    same = str(more.get("auto_pad")).startswith("SAME")  # onnxruntime leaves out dilations then, against ONNX
    if not same and (kind == "MaxPool" or (state.opset >= 19 and kind == "AveragePool")):
        more |= {"dilations": [state.pick([1, 1, 2]) for _ in range(rank)]}
    pads, steps = more.get("pads", [0] * 2 * rank), more.get("dilations", [1] * rank)
    whole = [
        extent + before + after for extent, before, after in zip(value.shape[2:], pads[:rank], pads[rank:], strict=True)
    ]
    if not same and any((tap - 1) * step >= extent for tap, step, extent in zip(taps, steps, whole, strict=True)):
        return None  # onnxruntime gives one output of a window beyond the data; ONNX defines none
    outputs = state.pick([1, 1, 2]) if kind == "MaxPool" else 1
    return state.node(kind, [name], outputs, **more)


def norm(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Normalizations."""
    if not _real(value) or value.ndim < 2:
        return None
    kind = state.pick(
        [
            "BatchNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "LRN",
            "LpNormalization",
            "MeanVarianceNormalization",
            "GroupNormalization",
        ]
    )
    channels = value.shape[1]
    if kind == "BatchNormalization":
        scale = [state.constant(state.numbers.random(channels) + 0.5) for _ in range(4)]
        return state.node(kind, [name, *scale], epsilon=state.pick([1e-5, 1e-3]))
    if kind == "InstanceNormalization":
        return (
            state.node(kind, [name, state.weight(channels), state.weight(channels)], epsilon=1e-3)
            if value.ndim > 2
            else None
        )
    if kind == "LayerNormalization":
        axis = state.axis(value.ndim)
        shape = value.shape[axis % value.ndim :]
        more = [state.weight(*shape)] if state.pick([True, False]) else []
        return state.node(kind, [name, state.weight(*shape), *more], axis=axis) if state.opset >= 17 else None
    if kind == "LRN":
        return (
            state.node(kind, [name], size=state.pick([1, 3, 5]), alpha=state.pick([1e-4, 0.1]), bias=1.5)
            if value.ndim == 4
            else None
        )
    if kind == "LpNormalization":
        return state.node(kind, [name], axis=state.axis(value.ndim), p=state.pick([1, 2]))
    if kind == "MeanVarianceNormalization":
        return state.node(
            kind, [name], axes=sorted(state.random.sample(range(value.ndim), state.random.randint(1, value.ndim)))
        )
    groups = state.pick([each for each in (1, 2, 3, channels) if channels % each == 0])
    return (
        state.node(kind, [name, state.weight(channels), state.weight(channels)], num_groups=groups)
        if state.opset >= 21
        else None
    )


def resize(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Resizes of planes."""
    if not _plane(state, value) or value.ndim > 4:
        return None
    mode = state.pick(["nearest", "linear", "cubic"])
    coordinates = [
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        *(["half_pixel_symmetric"] if state.opset >= 19 else []),
    ]
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": state.pick(coordinates)}
    if mode == "nearest":
        more |= {"nearest_mode": state.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])}
    if mode == "cubic":
        if value.ndim != 4:
            return None
        more |= {"cubic_coeff_a": state.pick([-0.75, -0.5]), "exclude_outside": state.pick([0, 1])}
    if mode != "nearest" and state.opset >= 18 and state.pick([True, False, False]):
        more |= {"antialias": 1}
    sizes = [state.pick([max(size // 2, 1), size, size + 3, 2 * size]) for size in value.shape[2:]]
    if state.pick([True, False]):
        return state.node("Resize", [name, "", "", state.constant([*value.shape[:2], *sizes], _INT)], **more)
    scales = [state.pick([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in value.shape[2:]]
    if state.opset >= 18 and state.pick([True, False]):
        return state.node("Resize", [name, "", state.constant(scales)], axes=list(range(2, value.ndim)), **more)
    return state.node("Resize", [name, "", state.constant([1, 1, *scales])], **more)


def window(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Samples of a plane at places: a grid, regions of interest, columns."""
    if not _real(value) or value.ndim != 4:
        return None
    kind, batch = state.pick(["GridSample", "RoiAlign", "Col2Im"]), value.shape[0]
    if kind == "GridSample":
        if state.opset < 17:
            return None
        grid = state.constant(state.numbers.uniform(-1.2, 1.2, (batch, 3, 4, 2)))
        mode = state.pick(["linear", "nearest", "cubic"] if state.opset >= 20 else ["bilinear", "nearest", "bicubic"])
        return state.node(
            kind,
            [name, grid],
            mode=mode,
            padding_mode=state.pick(["zeros", "border", "reflection"]),
            align_corners=state.pick([0, 1]),
        )
    if kind == "RoiAlign":
        boxes = np.sort(state.numbers.uniform(0, 6, (2, 2, 2)), 1).reshape(2, 4)
        where = state.constant(state.numbers.integers(0, batch, 2), _INT)
        return state.node(
            kind,
            [name, state.constant(boxes), where],
            output_height=2,
            output_width=3,
            sampling_ratio=state.pick([0, 2]),
            spatial_scale=0.8,
        )
    if state.opset < 18:
        return None
    columns = (
        state.node("Reshape", [name, state.constant([batch, -1, 9], _INT)]) if prod(value.shape[1:]) % 36 == 0 else None
    )
    return columns and state.node(kind, [columns, state.constant([4, 4], _INT), state.constant([2, 2], _INT)])
