"""OpenVINO's convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InvalidProblemError
from ..onnx.writer import shape_array
from .layer import Array, IrLayer
from .rules import node_problem


def _take_window(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return strides, dilations and pads by ONNX's names."""
    made: dict[str, Any] = {"strides": list(given["strides"])}
    if given.get("dilations"):
        made["dilations"] = list(given["dilations"])
    mode = given["auto_pad"].lower()
    if mode in ("explicit", "notset"):
        return made | {"pads": [*given["pads_begin"], *given["pads_end"]]}
    return made | {"auto_pad": mode.upper()}


def _convolve(layer: IrLayer) -> str:
    taps = layer.static(1)
    groups = taps[0] if layer.kind.startswith("Group") else 1
    merged = (taps[0] * taps[1], *taps[2:]) if layer.kind.startswith("Group") else taps

    def merge(array: Array) -> Array:
        return array.reshape(merged)

    filter_ = layer.weights(1, merge) if layer.is_fixed(1) else layer.input(1)
    if not layer.is_fixed(1) and merged != taps:
        filter_ = layer.op("Reshape", filter_, shape_array(*merged))
    if "Backprop" in layer.kind:
        return layer.op("ConvTranspose", layer.input(0), filter_, group=groups, **_crop(layer, taps))
    return layer.op("Conv", layer.input(0), filter_, group=groups, **_take_window(layer.given))


def _crop(layer: IrLayer, taps: tuple[int, ...]) -> dict[str, Any]:
    """Return the attributes of a transposed convolution; a given output shape determines the pads."""
    made = {name: list(layer.given[name]) for name in ("strides", "dilations")}
    explicit = layer.given["auto_pad"].lower() in ("explicit", "notset")
    if explicit and layer.count < 3:
        pads = [*layer.given["pads_begin"], *layer.given["pads_end"]]
        return made | {"pads": pads, "output_padding": list(layer.given["output_padding"])}
    try:
        problem = node_problem(layer.kind, layer.given, layer.static(), taps, layer.out_static(), "f32")
    except InvalidProblemError as error:
        raise ValueError(f"is not a convolution: {error}") from error
    pads = [*problem.pads_begin, *problem.pads_end]
    return made | {"pads": pads, "output_padding": list(problem.output_padding)}


def _take_pool(layer: IrLayer) -> dict[str, Any]:
    made = _take_window(layer.given) | {"kernel_shape": list(layer.given["kernel"])}
    rounding = layer.given.get("rounding_type", "floor").lower()
    if rounding == "floor" or "auto_pad" in made:
        return made
    spans = [
        dilation * (size - 1) + 1
        for size, dilation in zip(
            made["kernel_shape"], made.get("dilations") or [1] * len(made["strides"]), strict=True
        )
    ]
    outside = made["pads"][len(spans) :]
    if rounding == "ceil" and any(
        end + stride > span for end, stride, span in zip(outside, made["strides"], spans, strict=True)
    ):
        begins = [(count - 1) * stride for count, stride in zip(layer.out_static()[2:], made["strides"], strict=True)]
        behind = [size + pad for size, pad in zip(layer.static()[2:], made["pads"], strict=False)]
        if any(begin >= end for begin, end in zip(begins, behind, strict=True)):
            raise ValueError("has a window that starts beyond its data, which ONNX omits")
    if rounding == "ceil" and layer.kind == "AvgPool" and not layer.given["exclude-pad"]:
        # The last window counts elements behind the pads, too, which ONNX does not.
        for axis, (size, count, stride, span) in enumerate(
            zip(layer.static()[2:], layer.out_static()[2:], made["strides"], spans, strict=True)
        ):
            made["pads"][len(spans) + axis] = (count - 1) * stride + span - size - made["pads"][axis]
        return made
    return made | {"ceil_mode": 1}


def _pool_maxima(layer: IrLayer) -> list[str]:
    made = _take_pool(layer)
    if len(layer.outputs) < 2 or not layer.is_read(1):
        return [layer.op("MaxPool", layer.input(0), **made), *[""] * (len(layer.outputs) - 1)]
    values, places = layer.split("MaxPool", 2, layer.input(0), **made)
    inner = 1
    for extent in layer.static()[int(layer.given.get("axis", 0)) % layer.rank() :]:
        inner *= extent
    return [values, layer.cast(layer.op("Mod", places, shape_array(inner)), 1)]


def _pool_means(layer: IrLayer) -> str:
    return layer.op(
        "AveragePool", layer.input(0), **_take_pool(layer), count_include_pad=int(not layer.given["exclude-pad"])
    )


def _pool_adaptively(layer: IrLayer) -> list[str]:
    """Write an adaptive pool axis by axis: as a pool if all windows have the same size, else window by window."""
    kind = "Mean" if layer.kind == "AdaptiveAvgPool" else "Max"
    if len(layer.outputs) > 1 and layer.is_read(1):
        raise ValueError("returns the indices of its maxima")
    data, sizes, counts = layer.input(0), layer.static()[2:], layer.out_static()[2:]
    taps = [size // count if size % count == 0 else 1 for size, count in zip(sizes, counts, strict=True)]
    if any(tap > 1 for tap in taps):
        data = layer.op("AveragePool" if kind == "Mean" else "MaxPool", data, kernel_shape=taps, strides=taps)
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), 2):
        if size % count:
            ends = [(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]
            parts = [layer.op("Slice", data, *(shape_array(each) for each in (*end, axis))) for end in ends]
            data = layer.op(
                "Concat", *(layer.reduce(f"Reduce{kind}", each, shape_array(axis)) for each in parts), axis=axis
            )
    return [data, ""]


WINDOWS: Mapping[str, Callable[[IrLayer], str | list[str]]] = {
    "AdaptiveAvgPool": _pool_adaptively,
    "AdaptiveMaxPool": _pool_adaptively,
    "AvgPool": _pool_means,
    "Convolution": _convolve,
    "ConvolutionBackpropData": _convolve,
    "GroupConvolution": _convolve,
    "GroupConvolutionBackpropData": _convolve,
    "MaxPool": _pool_maxima,
}
