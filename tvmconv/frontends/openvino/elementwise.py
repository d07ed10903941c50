"""OpenVINO's operations on elements: arithmetic, activations, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto

from ..onnx.writer import shape_array
from .layer import Array, IrLayer

# OpenVINO's names by ONNX's, where operation and operands are the same.
_SAME = {
    "Abs": "Abs", "Acos": "Acos", "Acosh": "Acosh", "Asin": "Asin", "Asinh": "Asinh", "Atan": "Atan", "Atanh": "Atanh",
    "BitwiseAnd": "BitwiseAnd", "BitwiseNot": "BitwiseNot", "BitwiseOr": "BitwiseOr", "BitwiseXor": "BitwiseXor",
    "Ceiling": "Ceil", "Cos": "Cos", "Cosh": "Cosh", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor", "HSwish": "HardSwish",
    "IsNaN": "IsNaN", "Log": "Log", "LogicalNot": "Not", "Mish": "Mish", "Negative": "Neg", "Relu": "Relu", "Sigmoid": "Sigmoid",
    "Sign": "Sign", "Sin": "Sin", "Sinh": "Sinh", "SoftPlus": "Softplus", "SoftSign": "Softsign", "Sqrt": "Sqrt", "Tan": "Tan",
    "Tanh": "Tanh",
}  # fmt: skip
# Operations on two operands, which are broadcast as NumPy does. OpenVINO's CPUs divide whole numbers toward 0, as ONNX does.
_PAIRS = {
    "Add": "Add", "Divide": "Div", "Equal": "Equal", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor", "Maximum": "Max", "Minimum": "Min",
    "Multiply": "Mul", "Power": "Pow", "Subtract": "Sub",
}  # fmt: skip


def _write_same(layer: IrLayer) -> str:
    return layer.op(_SAME[layer.kind], *layer.inputs())


def _take_pair(layer: IrLayer) -> list[str]:
    """Return the operands; ValueError unless they are broadcast as in NumPy, or not at all."""
    mode = layer.given.get("auto_broadcast", "numpy")
    if mode not in ("numpy", "none", "explicit") and layer.shape(0) != layer.shape(1):
        raise ValueError(f"broadcasts by {mode}; networks broadcast as NumPy does")
    return layer.inputs()


def _write_pair(layer: IrLayer) -> str:
    return layer.op(_PAIRS[layer.kind], *_take_pair(layer))


def _differ(layer: IrLayer) -> str:
    return layer.op("Not", layer.op("Equal", *_take_pair(layer)))


def _square_difference(layer: IrLayer) -> str:
    apart = layer.op("Sub", *_take_pair(layer))
    return layer.op("Mul", apart, apart)


def _truncate_remainder(layer: IrLayer) -> str:
    return layer.op("Mod", *_take_pair(layer), fmod=1)


def _floor_remainder(layer: IrLayer) -> str:
    a, b = _take_pair(layer)
    if layer.dtype.kind in "iu":
        return layer.op("Mod", a, b)
    return layer.op("Sub", a, layer.op("Mul", b, layer.op("Floor", layer.op("Div", a, b))))


def _clamp(layer: IrLayer) -> str:
    low, high = float(layer.given["min"]), float(layer.given["max"])
    if layer.dtype.kind in "iu":
        bounds = np.iinfo(layer.dtype)
        low, high = max(np.ceil(low), bounds.min), min(np.floor(high), bounds.max)
    return layer.op("Clip", layer.input(0), layer.number_of(low), layer.number_of(high))


def _swish(layer: IrLayer) -> str:
    scaled = layer.input(0) if layer.count < 2 else layer.op("Mul", *layer.inputs())
    return layer.op("Mul", layer.input(0), layer.op("Sigmoid", scaled))


def _hard_sigmoid(layer: IrLayer) -> str:
    if layer.kind == "HSigmoid":
        return layer.op("HardSigmoid", layer.input(0), alpha=1 / 6, beta=0.5)
    alpha, beta = (_one(layer, place) for place in (1, 2))
    return layer.op("HardSigmoid", layer.input(0), alpha=alpha, beta=beta)


def _one(layer: IrLayer, place: int) -> float:
    array = layer.fixed(place)
    if array is None or array.size != 1:
        raise ValueError(f"needs a constant with one element as its input {place}")
    return float(array.reshape(())[()])


def _elu(layer: IrLayer) -> str:
    return layer.op("Elu", layer.input(0), alpha=float(layer.given["alpha"]))


def _selu(layer: IrLayer) -> str:
    return layer.op("Selu", layer.input(0), alpha=_one(layer, 1), gamma=_one(layer, 2))


def _gelu(layer: IrLayer) -> str:
    mode = str(layer.given.get("approximation_mode", "erf")).lower()
    return layer.op("Gelu", layer.input(0), approximate="tanh" if mode == "tanh" else "none")


def _prelu(layer: IrLayer) -> str:
    """Write PRelu; slopes of one axis are those of channels."""
    slope, rank = layer.input(1), layer.rank()
    extents = layer.shape(1)
    if len(extents) == 1 and extents != (1,) and rank > 2:
        slope = layer.op("Reshape", slope, shape_array(-1, *[1] * (rank - 2)))
    if layer.is_fixed(1) and layer.dtype_of(1) == layer.dtype:
        return layer.op("PRelu", layer.input(0), slope)
    zero = layer.number_of(0)
    data = layer.input(0)
    return layer.op("Where", layer.op("Less", data, zero), layer.op("Mul", data, slope), data)


def _round(layer: IrLayer) -> str:
    data = layer.input(0)
    if layer.given["mode"].lower() == "half_to_even":
        return layer.op("Round", data)
    size = layer.op("Floor", layer.op("Add", layer.op("Abs", data), layer.number_of(0.5)))
    return layer.op("Mul", layer.op("Sign", data), size)


def _find_infinite(layer: IrLayer) -> str:
    signs = {name: int(layer.given[name]) for name in ("detect_negative", "detect_positive")}
    return layer.op("IsInf", layer.input(0), **signs)


def _find_finite(layer: IrLayer) -> str:
    data = layer.input(0)
    return layer.op("Not", layer.op("Or", layer.op("IsNaN", data), layer.op("IsInf", data)))


def _select(layer: IrLayer) -> str:
    mode = layer.given.get("auto_broadcast", "numpy")
    if mode == "pdpd" and len({layer.shape(place) for place in range(3)}) > 1:
        raise ValueError("broadcasts by pdpd; networks broadcast as NumPy does")
    condition, *both = layer.inputs()
    if layer.dtype != np.bool_:
        condition = layer.op("Cast", condition, to=TensorProto.BOOL)
    return layer.op("Where", condition, *both)


def _convert(layer: IrLayer) -> str:
    return layer.cast(layer.input(0))


def _fake_quantize(layer: IrLayer) -> str:
    """Write FakeQuantize as such, which the reader of ONNX files knows from NNCF's."""
    bounds: list[Array] = [_fix_bound(layer, place) for place in range(1, 5)]
    domain = "org.openvinotoolkit"
    return layer.op("FakeQuantize", layer.input(0), *bounds, domain=domain, levels=int(layer.given["levels"]))


def _fix_bound(layer: IrLayer, place: int) -> Array:
    array = layer.fixed(place)
    assert array is not None
    return array


ELEMENTWISE: Mapping[str, Callable[[IrLayer], str]] = {
    **dict.fromkeys(_SAME, _write_same),
    **dict.fromkeys(_PAIRS, _write_pair),
    "Clamp": _clamp,
    "Convert": _convert,
    "ConvertLike": _convert,
    "Elu": _elu,
    "FakeQuantize": _fake_quantize,
    "FloorMod": _floor_remainder,
    "Gelu": _gelu,
    "HSigmoid": _hard_sigmoid,
    "HardSigmoid": _hard_sigmoid,
    "IsFinite": _find_finite,
    "IsInf": _find_infinite,
    "Mod": _truncate_remainder,
    "NotEqual": _differ,
    "PRelu": _prelu,
    "Round": _round,
    "Select": _select,
    "Selu": _selu,
    "SquaredDifference": _square_difference,
    "Swish": _swish,
}
