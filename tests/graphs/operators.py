"""ONNX' operators, as random nodes; attributes are those that exporters and standards have, likely or not."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .draw import Draw, Operator

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
    if kind == "MaxPool" or (state.opset >= 19 and kind == "AveragePool"):
        more |= {"dilations": [state.pick([1, 1, 2]) for _ in range(rank)]}
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


UNARY = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Atan", "Softplus", "Softsign", "Identity", "HardSwish", "Dropout", "Asinh", "Sinh", "Tan")  # fmt: skip
DOMAINS = {"Sqrt": 0.01, "Log": 0.1, "Reciprocal": 0.5, "Acosh": 1.1, "Exp": None}


def unary(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Functions of one number."""
    if not _real(value):
        return None
    if state.pick([True, True, False]):
        return state.node(state.pick(UNARY), [name])
    kind, least = state.pick(list(DOMAINS.items()))
    if least is None:
        return state.node(kind, [state.node("Clip", [name, "", state.constant(5.0)])])
    return state.node(kind, [state.node("Add", [state.node("Abs", [name]), state.constant(least)])])


def activation(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Activations with parameters."""
    if not _real(value):
        return None
    number = round(state.random.uniform(0.1, 2), 2)
    kinds: dict[str, dict[str, Any]] = {
        "LeakyRelu": {"alpha": number}, "Elu": {"alpha": number}, "Selu": {}, "Celu": {"alpha": number}, "ThresholdedRelu": {"alpha": number},
        "HardSigmoid": {"alpha": number / 4, "beta": 0.4}, "Shrink": {"lambd": number, "bias": 0.1}, "PRelu": {}, "Clip": {},
        **({"Mish": {}} if state.opset >= 18 else {}), **({"Gelu": {"approximate": state.pick(["none", "tanh"])}} if state.opset >= 20 else {}),
    }  # fmt: skip
    kind = state.pick(list(kinds))
    if kind == "PRelu":
        shape = state.pick([(1,), (value.shape[1], *[1] * (value.ndim - 2)) if value.ndim > 1 else (1,), value.shape])
        return state.node(kind, [name, state.weight(*shape)])
    if kind == "Clip":
        low, high = state.constant(-number), state.constant(number)
        return state.node(kind, state.pick([[name, low, high], [name, low], [name, "", high], [name]]))
    return state.node(kind, [name], **({} if state.pick([True, False, False]) and kind != "Gelu" else kinds[kind]))


def binary(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Operators on two values, or a value and a constant, that are broadcast."""
    kind = state.pick(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Mod"])
    if value.dtype == np.bool_ or (kind in ("Sum", "Mean", "Mod") and not _real(value)):
        return None
    fits = state.other(lambda other: other.dtype == value.dtype and _broadcasts(other.shape, value.shape))
    if fits is None or state.pick([True, False]):
        shape = [state.pick([size, size, 1]) for size in value.shape[state.random.randint(0, value.ndim) :]]
        numbers = state.numbers.standard_normal(shape)
        fits = state.constant(np.where(np.abs(numbers) < 0.3, 0.7, numbers) * (1 if _real(value) else 5), value.dtype)
    if kind in ("Div", "Mod") and not (fits in state.constants and np.all(state.constants[fits] != 0)):
        return None
    if kind == "Mod":
        return state.node(kind, [name, fits], fmod=1)
    return state.node(kind, [name, fits] if kind in ("Div", "Mod") or state.pick([True, False]) else [fits, name])


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, other)
    except ValueError:
        return False
    return True


def logic(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Comparisons, and what is done with them."""
    if value.dtype == np.bool_:
        kind = state.pick(["Not", "And", "Or", "Xor", "Cast", "Where"])
        if kind == "Not":
            return state.node(kind, [name])
        if kind == "Cast":
            return state.node(kind, [name], to=TensorProto.FLOAT)
        if kind == "Where":
            return state.node(kind, [name, state.weight(*value.shape), state.constant(state.pick([0.0, -2.0]))])
        return state.node(kind, [name, state.constant(state.numbers.random(value.shape[-1:]) < 0.5, np.bool_)])
    if not _real(value):
        return None
    if state.pick([True, False, False]):
        return state.node(state.pick(["IsNaN", "IsInf"]), [name])
    return state.node(
        state.pick(["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"]), [name, state.constant(0.1)]
    )


def cast(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Casts, and back."""
    if value.dtype == np.int64 or value.dtype == np.int32:
        return state.node("Cast", [name], to=TensorProto.FLOAT)
    if not _real(value):
        return None
    kind = state.pick([TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.FLOAT16])
    made = state.node("Cast", [name], to=kind)
    return (
        state.node("Cast", [made], to=TensorProto.FLOAT) if kind in (TensorProto.DOUBLE, TensorProto.FLOAT16) else made
    )


def matmul(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Matrix products."""
    if not _real(value) or not value.ndim:
        return None
    kind, last = state.pick(["MatMul", "MatMul", "Gemm", "values", "Einsum"]), value.shape[-1]
    if kind == "MatMul":
        return state.node(kind, [name, state.weight(*state.pick([(last, 5), (last,), (last, 12)]))])
    if kind == "values":
        other = state.other(
            lambda other: (
                _real(other)
                and other.ndim == value.ndim >= 2
                and other.shape[:-2] == value.shape[:-2]
                and other.shape[-2] == last
            )
        )
        if other is None and value.ndim >= 2:
            order = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            other = state.node("Transpose", [name], perm=order)
        return other and state.node("MatMul", [name, other])
    if kind == "Einsum":
        texts = {
            2: ["ij->ji", "ij,jk->ik", "ij->i", "ij,kj->ki"],
            3: ["bij,jk->bik", "bij->bji", "bij,bkj->bik"],
            4: ["bhij,jk->bhik", "bchw->bhwc", "bchw,dc->bdhw"],
        }
        if value.ndim not in texts:
            return None
        text = state.pick(texts[value.ndim])
        if "," not in text:
            return state.node(kind, [name], equation=text)
        first, second = text.partition("->")[0].split(",")
        sizes = dict(zip(first, value.shape, strict=True))
        return state.node(kind, [name, state.weight(*(sizes.get(each, 4) for each in second))], equation=text)
    if value.ndim != 2:
        return None
    across, down = state.pick([0, 1]), state.pick([0, 1])
    inner = value.shape[0] if across else last
    outer = value.shape[1] if across else value.shape[0]
    bias = state.pick([None, (), (7,), (1, 7), (outer, 1), (outer, 7)])
    inputs = [
        name,
        state.weight(*((7, inner) if down else (inner, 7))),
        *([] if bias is None else [state.weight(*bias)]),
    ]
    return state.node(
        "Gemm", inputs, transA=across, transB=down, alpha=state.pick([1.0, 0.5]), beta=state.pick([1.0, 2.0])
    )


def reduce(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Reductions."""
    if not _real(value) or not value.ndim:
        return None
    kind = state.pick(
        [
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSumExp",
            "ReduceProd",
            "ReduceLogSum",
        ]
    )
    if kind == "ReduceLogSum":
        name = state.node("Add", [state.node("Abs", [name]), state.constant(0.1)])
    axes = [
        each - state.pick([0, value.ndim])
        for each in state.random.sample(range(value.ndim), state.random.randint(1, value.ndim))
    ]
    more: dict[str, Any] = {"keepdims": state.pick([0, 1])} if state.pick([True, True, False]) else {}
    if state.pick([True, True, True, False]):
        if state.opset >= 18 or kind == "ReduceSum":
            return state.node(kind, [name, state.constant(axes, _INT)], **more)
        return state.node(kind, [name], axes=axes, **more)
    if state.opset >= 18 and state.pick([True, False]):
        more |= {"noop_with_empty_axes": state.pick([0, 1])}
    return state.node(kind, [name], **more)


def along(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Functions along an axis."""
    if not _real(value) or not value.ndim:
        return None
    kind, axis = (
        state.pick(["Softmax", "Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "TopK", "CumSum"]),
        state.axis(value.ndim),
    )
    if kind in ("Softmax", "LogSoftmax", "Hardmax"):
        return state.node(kind, [name], **({} if state.pick([True, False, False]) else {"axis": axis}))
    if kind == "CumSum":
        return state.node(
            kind, [name, state.constant(axis, _INT)], exclusive=state.pick([0, 1]), reverse=state.pick([0, 1])
        )
    if kind == "TopK":
        count = state.random.randint(1, value.shape[axis])
        return state.node(kind, [name, state.constant([count], _INT)], 2, axis=axis, largest=state.pick([0, 1]))
    return state.node(kind, [name], axis=axis, keepdims=state.pick([0, 1]), select_last_index=state.pick([0, 1]))


def move(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Transposes, reshapes, axes of one."""
    rank, kind = (
        value.ndim,
        state.pick(
            [
                "Transpose",
                "Transpose",
                "Reshape",
                "Reshape",
                "Flatten",
                "Squeeze",
                "Unsqueeze",
                "DepthToSpace",
                "SpaceToDepth",
                "shape",
            ]
        ),
    )
    if kind == "Transpose":
        if not rank:
            return None
        return state.node(
            kind,
            [name],
            **({"perm": state.random.sample(range(rank), rank)} if state.pick([True, True, False]) else {}),
        )
    if kind == "Reshape":
        if rank >= 2 and state.pick([True, False]):
            shape = [0, *([0] if rank > 2 and state.pick([True, False]) else []), -1]
        else:
            shape = state.pick(
                [[-1], [value.size], [1, -1], [-1, 1], [*value.shape[:1], -1], [-1, value.shape[-1] if rank else 1]]
            )
            factor = next((each for each in (2, 3, 5) if rank and value.shape[-1] % each == 0), 1)
            shape = state.pick([shape, [*value.shape[:-1], factor, -1]])
        return state.node(kind, [name, state.constant(shape, _INT)])
    if kind == "Flatten":
        return state.node(kind, [name], axis=state.random.randint(-rank, rank))
    if kind == "Squeeze":
        ones = [at - state.pick([0, rank]) for at, size in enumerate(value.shape) if size == 1]
        return (
            state.node(kind, [name, state.constant(ones[:1], _INT)] if state.pick([True, False]) else [name])
            if ones
            else None
        )
    if kind == "Unsqueeze":
        return state.node(kind, [name, state.constant([state.axis(rank + 1)], _INT)])
    if kind == "shape":  # as exporters write it: a size that is read, and a shape that is put together
        if rank < 2:
            return None
        sizes = state.node("Shape", [name])
        first = state.node("Gather", [sizes, state.constant(0, _INT)], axis=0)
        first = state.node("Unsqueeze", [first, state.constant([0], _INT)])
        return state.node("Reshape", [name, state.node("Concat", [first, state.constant([-1], _INT)], axis=0)])
    if rank != 4 or not _real(value):
        return None
    if kind == "DepthToSpace":
        return (
            state.node(kind, [name], blocksize=2, mode=state.pick(["DCR", "CRD"])) if value.shape[1] % 4 == 0 else None
        )
    return state.node(kind, [name], blocksize=2) if value.shape[2] % 2 == value.shape[3] % 2 == 0 else None


def part(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Slices, splits, concatenations, pads, tiles."""
    rank = value.ndim
    if not rank:
        return None
    kind, axis = (
        state.pick(["Slice", "Slice", "Split", "Concat", "Concat", "Pad", "Pad", "Tile", "Expand", "CenterCropPad"]),
        state.axis(rank),
    )
    size = value.shape[axis]
    if kind == "Slice":
        step = state.pick([1, 1, 2, -1, -2])
        begin, end = state.pick([(0, size), (1, size), (0, -1), (-3, 2**31 - 1), (1, 3), (0, 2**63 - 1)])
        begin, end = (
            (begin, end) if step > 0 else (state.pick([-1, size - 1, 2**31 - 1]), state.pick([-(2**63), -size - 1, 0]))
        )
        return state.node(kind, [name, *(state.constant([each], _INT) for each in (begin, end, axis, step))])
    if kind == "Split":
        if size < 2:
            return None
        parts = state.pick([[1, size - 1], [size // 2, size - size // 2]])
        return state.node(kind, [name, state.constant(parts, _INT)], 2, axis=axis)
    if kind == "Concat":
        same = [
            name,
            *(
                each
                for each, other in state.values.items()
                if other.dtype == value.dtype and _joins(other.shape, value.shape, axis)
            ),
        ]
        return state.node(kind, [*state.random.sample(same, min(len(same), 2)), name], axis=axis)
    if kind == "Pad":
        mode = state.pick(["constant", "constant", "reflect", "edge", *(["wrap"] if state.opset >= 19 else [])])
        pads = [state.pick([0, 0, 1, 2, *([-1] if mode == "constant" else [])]) for _ in range(2 * rank)]
        fill = (
            [state.constant(state.pick([0, 1.5, -3]), value.dtype)]
            if mode == "constant" and state.pick([True, False])
            else []
        )
        return (
            state.node(kind, [name, state.constant(pads, _INT), *fill], mode=mode) if value.dtype != np.bool_ else None
        )
    if kind == "Tile":
        return state.node(kind, [name, state.constant([state.pick([1, 1, 2, 3]) for _ in range(rank)], _INT)])
    if kind == "Expand":
        return state.node(
            kind,
            [name, state.constant([2, *(state.pick([1, each]) for each in value.shape)][state.pick([0, 1]) :], _INT)],
        )
    if state.opset < 18:
        return None
    return state.node(kind, [name, state.constant([size + state.pick([-1, 1, 3])], _INT)], axes=[axis])


def _joins(one: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    axis %= len(other)
    return len(one) == len(other) and all(
        at == axis or a == b for at, (a, b) in enumerate(zip(one, other, strict=True))
    )


def index(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Gathers, scatters, and the like, at constant places."""
    rank = value.ndim
    if not rank or value.dtype == np.bool_:
        return None
    kind, axis = (
        state.pick(
            [
                "Gather",
                "Gather",
                "GatherElements",
                "GatherND",
                "ScatterElements",
                "ScatterND",
                "OneHot",
                "Trilu",
                "ReverseSequence",
            ]
        ),
        state.axis(rank),
    )
    size = value.shape[axis]

    def places(*shape: int) -> np.ndarray:
        return state.numbers.integers(-size, size, shape)

    if kind == "Gather":
        return state.node(
            kind,
            [name, state.constant(places(*state.pick([(), (3,), (2, 2)])), state.pick([_INT, np.int32]))],
            axis=axis,
        )
    if kind == "GatherElements":
        return state.node(kind, [name, state.constant(places(*value.shape), _INT)], axis=axis)
    if kind == "GatherND":
        depth = state.random.randint(1, rank)
        chosen = np.stack([state.numbers.integers(0, each, (3,)) for each in value.shape[:depth]], -1)
        return state.node(kind, [name, state.constant(chosen, _INT)])
    if kind == "ScatterElements":
        chosen = np.argsort(state.numbers.random(value.shape), axis)
        more = (
            {"reduction": state.pick(["none", "add", "mul", "max", "min"])}
            if state.opset >= 18 and _real(value)
            else {}
        )
        return state.node(
            kind,
            [
                name,
                state.constant(chosen, _INT),
                state.constant(state.numbers.standard_normal(value.shape), value.dtype),
            ],
            axis=axis,
            **more,
        )
    if kind == "ScatterND":
        chosen = state.numbers.permutation(value.shape[0])[:2, None]
        updates = state.constant(state.numbers.standard_normal((len(chosen), *value.shape[1:])), value.dtype)
        more = {"reduction": state.pick(["none", "add"])} if state.opset >= 18 and _real(value) else {}
        return state.node(kind, [name, state.constant(chosen, _INT), updates], **more)
    if kind == "OneHot":
        if value.dtype != np.int64:
            return None
        return state.node(kind, [name, state.constant(6, _INT), state.constant([0, 1])], axis=state.axis(rank))
    if kind == "Trilu":
        return (
            state.node(
                kind,
                [name, *([state.constant(state.pick([-1, 0, 1, 2]), _INT)] if state.pick([True, False]) else [])],
                upper=state.pick([0, 1]),
            )
            if rank >= 2
            else None
        )
    if rank < 2:
        return None
    lengths = state.numbers.integers(1, value.shape[0] + 1, (value.shape[1],))
    return state.node(kind, [name, state.constant(lengths, _INT)], time_axis=0, batch_axis=1)


def recurrent(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Recurrent layers."""
    if not _real(value) or value.ndim != 3 or value.shape[0] > 6:
        return None
    kind, hidden = state.pick(["LSTM", "GRU", "RNN"]), 5
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    way = state.pick(["forward", "reverse", "bidirectional"])
    ways = 2 if way == "bidirectional" else 1
    inputs = [name, state.weight(ways, gates * hidden, value.shape[2]), state.weight(ways, gates * hidden, hidden)]
    if state.pick([True, False]):
        inputs.append(state.weight(ways, 2 * gates * hidden))
    more = {"linear_before_reset": state.pick([0, 1])} if kind == "GRU" else {}
    return state.node(kind, inputs, 2, hidden_size=hidden, direction=way, **more)


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


def quantized(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Quantizations, and back."""
    if not _real(value):
        return None
    kind = state.pick([np.uint8, np.int8])
    scale, zero = state.constant(state.pick([0.02, 0.1])), state.constant(state.pick([0, 3]), kind)
    made = state.node("QuantizeLinear", [name, scale, zero])
    return state.node("DequantizeLinear", [made, scale, zero])


def sequence(state: Draw, name: str, value: np.ndarray) -> _Name:
    """An If of a constant, or of a number that is computed."""
    if not _real(value) or state.opset < 13:
        return None
    branches = []
    for at, kind in enumerate(["Relu", "Neg"]):
        out = f"b{len(state.nodes)}_{at}"
        described = helper.make_tensor_value_info(out, TensorProto.FLOAT, value.shape)
        branches.append(helper.make_graph([helper.make_node(kind, [name], [out])], kind, [], [described]))
    total = state.node("ReduceSum", [name], keepdims=0)
    return state.node(
        "If", [state.node("Greater", [total, state.constant(0.0)])], then_branch=branches[0], else_branch=branches[1]
    )


OPERATORS: dict[str, Operator] = {
    each.__name__: each
    for each in (
        convolution, transposed, pool, norm, resize, unary, activation, binary, logic, cast, matmul, reduce, along, move, part, index, recurrent, window, quantized, sequence,
    )
}  # fmt: skip
