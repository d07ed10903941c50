"""Nodes on numbers: functions, products, reductions, recurrent layers, quantizations."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .draw import Draw

_Name = str | None
_INT = np.int64


def _real(value: np.ndarray) -> bool:
    return value.dtype == np.float32


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
        return state.node(kind, [name, state.weight(*state.pick([(last, 5), (last,), (last, 12), (last, last)]))])
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
    columns = state.pick([7, inner])
    bias = state.pick([None, (), (columns,), (1, columns), (outer, 1), (outer, columns)])
    inputs = [
        name,
        state.weight(*((columns, inner) if down else (inner, columns))),
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
