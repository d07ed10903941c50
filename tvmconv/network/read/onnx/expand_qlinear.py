"""ONNX's and Microsoft's operators on integers as the same in f32, between DequantizeLinear and QuantizeLinear.

onnxruntime saturates pairs of products of the former in 16 bits on CPUs without VNNI, or lacks them (ConvInteger by filters of s8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from onnx import TensorProto, helper

from ....frontends.onnx.graph import attributes_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Add = Callable[..., str]


def expand_qlinear(model: ModelProto) -> None:
    """Replace the operators on integers of a model's graph."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += _expand(node) if node.op_type in _EXPANSIONS else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _expand(node: NodeProto) -> Iterator[NodeProto]:
    made: list[NodeProto] = []

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        made.append(helper.make_node(kind, inputs, [f"{node.output[0]}.{len(made)}"], **attributes))
        return str(made[-1].output[0])

    inputs = [*node.input, *[""] * (9 - len(node.input))]
    _EXPANSIONS[node.op_type](add, inputs, attributes_of(node))
    made[-1].output[0] = node.output[0]
    yield from made


def _conv(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs
    data = add("DequantizeLinear", x, x_scale, x_zero)
    parts = [data, add("DequantizeLinear", w, w_scale, w_zero, axis=0)]
    if bias:
        parts.append(add("Mul", add("Cast", bias, to=TensorProto.FLOAT), add("Mul", x_scale, w_scale)))
    add("QuantizeLinear", add("Conv", *parts, **given), y_scale, y_zero)


def _matmul(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, _ = inputs
    right = add("DequantizeLinear", b, b_scale, b_zero)
    add("QuantizeLinear", add("MatMul", add("DequantizeLinear", a, a_scale, a_zero), right, **given), y_scale, y_zero)


def _gemm(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = inputs
    right = add("DequantizeLinear", b, b_scale, b_zero, axis=0 if given.get("transB") else 1)
    parts = [add("DequantizeLinear", a, a_scale, a_zero), right]
    if bias:
        parts.append(add("Mul", add("Cast", bias, to=TensorProto.FLOAT), add("Mul", a_scale, b_scale)))
    made = add("Gemm", *parts, **given)
    if y_scale:
        add("QuantizeLinear", made, y_scale, y_zero)


def _of_two(kind: str) -> Callable[[Add, list[str], dict[str, Any]], None]:
    def expand(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
        left, right = (add("DequantizeLinear", *inputs[at : at + 3]) for at in (0, 3))
        add("QuantizeLinear", add(kind, left, right), *inputs[6:8])

    return expand


def _average(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    values = add("DequantizeLinear", *inputs[:3])
    if given.get("channels_last"):
        values = add("Transpose", values, perm=[0, 3, 1, 2])
    values = add("GlobalAveragePool", values)
    if given.get("channels_last"):
        values = add("Transpose", values, perm=[0, 2, 3, 1])
    add("QuantizeLinear", values, *inputs[3:5])


def _concat(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    names = [each for each in inputs if each]
    parts = [add("DequantizeLinear", *names[at : at + 3]) for at in range(2, len(names), 3)]
    add("QuantizeLinear", add("Concat", *parts, **given), *names[:2])


def _integer(kind: str) -> Callable[[Add, list[str], dict[str, Any]], None]:
    def expand(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
        # f32 has sums up to 2^24 exactly; onnxruntime's Conv has no wider type.
        wide = TensorProto.FLOAT if kind == "Conv" else TensorProto.INT32
        factors = []
        for at, values in enumerate(inputs[:2]):
            values = add("Cast", values, to=wide)
            zero = inputs[2 + at]
            factors.append(add("Sub", values, add("Cast", zero, to=wide)) if zero else values)
        add("Cast", add(kind, *factors, **given), to=TensorProto.INT32)

    return expand


_EXPANSIONS: dict[str, Callable[[Add, list[str], dict[str, Any]], None]] = {
    "ConvInteger": _integer("Conv"),
    "MatMulInteger": _integer("MatMul"),
    "QGemm": _gemm,
    "QLinearAdd": _of_two("Add"),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _average,
    "QLinearMatMul": _matmul,
    "QLinearMul": _of_two("Mul"),
}
