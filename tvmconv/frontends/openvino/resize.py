"""OpenVINO's Interpolate, of all versions, as ONNX's Resize; nearest neighbours that ONNX lacks, as gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..onnx.writer import shape_array
from .layer import Array, IrLayer

# ONNX's names of interpolations, and whether they antialias when they shrink.
_MODES = {
    "bicubic_pillow": ("cubic", True),
    "bilinear_pillow": ("linear", True),
    "cubic": ("cubic", False),
    "linear": ("linear", False),
    "linear_onnx": ("linear", False),
    "nearest": ("nearest", False),
}


def _resize(layer: IrLayer) -> str:
    given = _take_attributes(layer)
    mode = str(given["mode"]).lower()
    if mode not in _MODES:
        raise ValueError(f"is {mode}; networks have {', '.join(_MODES)}")
    kind, averages = _MODES[mode]
    axes = [int(each) for each in given["axes"]] if layer.version == "opset1" else _find_axes(layer)
    data = layer.input(0)
    if any((*given["pads_begin"], *given["pads_end"])):
        rank = layer.rank()
        pads = ([*given[name], *[0] * rank][:rank] for name in ("pads_begin", "pads_end"))
        data = layer.op("Pad", data, shape_array(*(each for side in pads for each in side)), mode="constant")
    coordinates, nearest = (str(given[name]).lower() for name in ("coordinate_transformation_mode", "nearest_mode"))
    if kind == "nearest" and (nearest == "simple" or coordinates == "tf_half_pixel_for_nn"):
        return _take_nearest(layer, data, given, axes)
    if coordinates == "tf_half_pixel_for_nn":
        raise ValueError("has tf_half_pixel_for_nn coordinates, which networks support only for nearest neighbours")
    factors, sizes = _find_factors(layer, given, axes), _find_sizes(layer, given, axes)
    more: dict[str, Any] = {"nearest_mode": nearest} if kind == "nearest" else {}
    more |= {"cubic_coeff_a": float(given["cube_coeff"])} if kind == "cubic" else {}
    more |= {"antialias": 1, "exclude_outside": 1} if averages or (given["antialias"] and kind != "nearest") else {}
    taken: list[str | Array] = [data, "", factors] if factors is not None else [data, "", "", sizes]
    return layer.op("Resize", *taken, mode=kind, coordinate_transformation_mode=coordinates, **more)


def _take_attributes(layer: IrLayer) -> dict[str, Any]:
    """Return the attributes in the form of version 4."""
    given = dict(layer.given)
    if layer.version != "opset1":
        return given
    return given | {
        "coordinate_transformation_mode": "align_corners" if given["align_corners"] else "asymmetric",
        "nearest_mode": "simple",
        "shape_calculation_mode": "sizes",
        "cube_coeff": -0.75,
    }


def _find_axes(layer: IrLayer) -> list[int]:
    place = 2 if layer.version == "opset11" else 3
    return layer.axes(place, list(range(layer.rank())))


def _find_factors(layer: IrLayer, given: Mapping[str, Any], axes: Sequence[int]) -> Array | None:
    """Return the factors of all axes; None if the layer has sizes instead."""
    if str(given["shape_calculation_mode"]).lower() != "scales":
        return None
    factors = np.ones(layer.rank(), np.float32)
    scales = layer.fixed(1 if layer.version == "opset11" else 2)
    assert scales is not None
    factors[axes] = scales
    for axis, (size, made) in enumerate(zip(layer.shape(), layer.out_shape(), strict=True)):
        if size is not None and made is not None and np.floor(np.float32(size) * factors[axis]) < made:
            factors[axis] *= 1 + 2.0**-20  # OpenVINO rounds up numbers just below a whole size
    return factors


def _find_sizes(layer: IrLayer, given: Mapping[str, Any], axes: Sequence[int]) -> str | Array:
    shape = layer.out_shape()
    if None not in shape:
        return shape_array(*layer.out_static())
    if str(given["shape_calculation_mode"]).lower() == "scales":
        return ""
    own, wanted = layer.op("Shape", layer.input(0)), layer.integers(1)
    parts = []
    for axis in range(len(shape)):
        taken, place = (wanted, list(axes).index(axis)) if axis in axes else (own, axis)
        parts.append(layer.op("Gather", taken, shape_array(place), axis=0))
    return layer.op("Concat", *parts, axis=0)


def _take_nearest(layer: IrLayer, data: str, given: Mapping[str, Any], axes: Sequence[int]) -> str:
    """Write the interpolation as a gather along each axis."""
    begins, ends = ([*given[name], *[0] * layer.rank()] for name in ("pads_begin", "pads_end"))
    sizes = [size + begin + end for size, begin, end in zip(layer.static(), begins, ends, strict=False)]
    factors = _find_factors(layer, given, axes)
    for axis in axes:
        size, made = sizes[axis], layer.out_static()[axis]
        factor = np.float32(made / size) if factors is None else factors[axis]
        if made == size and factor == 1:
            continue
        data = layer.op("Gather", data, _find_places(given, size, made, factor), axis=axis)
    return data


def _find_places(given: Mapping[str, Any], size: int, made: int, factor: Any) -> Array:
    at, coordinates = np.arange(made, dtype=np.float32), str(given["coordinate_transformation_mode"]).lower()
    half = np.float32(0.5)
    if coordinates == "align_corners":
        found = at * np.float32((size - 1) / (made - 1)) if made > 1 else at * 0
    elif coordinates == "tf_half_pixel_for_nn":
        found = (at + half) / factor
    elif coordinates == "asymmetric":
        found = at / factor
    else:
        found = at * 0 if made == 1 and coordinates.startswith("pytorch") else (at + half) / factor - half
    nearest: Mapping[str, Any] = {
        "ceil": np.ceil,
        "floor": np.floor,
        "round_prefer_ceil": lambda each: np.floor(each + half),
        "round_prefer_floor": lambda each: np.ceil(each - half),
        "simple": np.ceil if factor < 1 else np.floor,
    }
    rounded = nearest[str(given["nearest_mode"]).lower()](found)
    return np.clip(rounded, 0, size - 1).astype(np.int64)


RESIZES: Mapping[str, Callable[[IrLayer], str]] = {"Interpolate": _resize}
