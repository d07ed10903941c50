"""OpenVINO's normalizations, and softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..onnx.writer import shape_array
from .layer import IrLayer


def _write_softmax(layer: IrLayer) -> str:
    return layer.op(layer.kind, layer.input(0), axis=int(layer.given["axis"]))


def _center(layer: IrLayer) -> str:
    """Write MVN: subtract the mean, divide by the standard deviation."""
    given = layer.given
    axes = layer.axes(1) if layer.count > 1 else [int(each) for each in given["reduction_axes"]]
    data, along = layer.input(0), shape_array(*axes)
    centred = layer.op("Sub", data, layer.reduce("ReduceMean", data, along))
    if not given["normalize_variance"]:
        return centred
    variance = layer.reduce("ReduceMean", layer.op("Mul", centred, centred), along)
    small = layer.number_of(float(given["eps"]))
    if str(given.get("eps_mode", "inside_sqrt")).lower() == "outside_sqrt":
        return layer.op("Div", centred, layer.op("Add", layer.op("Sqrt", variance), small))
    return layer.op("Div", centred, layer.op("Sqrt", layer.op("Add", variance, small)))


def _normalize(layer: IrLayer) -> str:
    data, axes = layer.input(0), layer.axes(1)
    squares = layer.op("Mul", data, data)
    total = layer.reduce("ReduceSum", squares, shape_array(*axes)) if axes else squares
    how = "Add" if str(layer.given["eps_mode"]).lower() == "add" else "Max"
    total = layer.op(how, total, layer.number_of(float(layer.given["eps"])))
    return layer.op("Div", data, layer.op("Sqrt", total))


def _normalize_locally(layer: IrLayer) -> str:
    if layer.axes(1) != [1]:
        raise ValueError(f"normalizes along the axes {layer.axes(1)}; networks only along the channels, axis 1")
    given = layer.given
    numbers = {name: float(given[name]) for name in ("alpha", "beta", "bias")}
    return layer.op("LRN", layer.input(0), size=int(given["size"]), **numbers)


def _normalize_batch(layer: IrLayer) -> str:
    """Write BatchNormInference, of which version 1 has the data as its third input."""
    places = [2, 0, 1, 3, 4] if layer.version == "opset1" else [0, 1, 2, 3, 4]
    return layer.op("BatchNormalization", *map(layer.input, places), epsilon=float(layer.given["epsilon"]))


def _normalize_groups(layer: IrLayer) -> str:
    given = layer.given
    return layer.op(
        "GroupNormalization", *layer.inputs(), num_groups=int(given["num_groups"]), epsilon=float(given["epsilon"])
    )


NORMALIZATIONS: Mapping[str, Callable[[IrLayer], str]] = {
    "BatchNormInference": _normalize_batch,
    "GroupNormalization": _normalize_groups,
    "LRN": _normalize_locally,
    "LogSoftmax": _write_softmax,
    "MVN": _center,
    "NormalizeL2": _normalize,
    "Softmax": _write_softmax,
}
